"""Strategies of models with dropout: the masks depend on the number of the step, and not on the device.

The step's number is the optimizer's count, or that of each layer's own calls, so it is saved, restored and sharded with
the state.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import jax
from flax import nnx

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import OnMesh, TrainState
from reference_impl.forms.keeping import NnxKeeping
from reference_impl.forms.nnx_form import NnxForm, State


class Drawing(JaxForm):
    """Plain JAX. Each batch has a field ``step``: how many steps the state has taken."""

    draws: ClassVar[bool] = True

    @cached_property
    def loss(self) -> OnMesh:
        """The forward pass, with the next step's draws."""
        return self.compile(lambda state, batch: self.forward(state.parameters, self.numbered(state, batch)))

    @cached_property
    def gradients(self) -> OnMesh:
        """The gradients, with the next step's draws, sharded by the page's mapping."""
        return self.compile(
            lambda state, batch: self.loss_and_gradients(state.parameters, self.numbered(state, batch))[1],
            out_shardings=self.on_mesh(self.page.gradients.specs(self.network.axes)),
        )

    def step(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, jax.Array]]:
        """The train step, before ``jit``."""
        return super().step(state, self.numbered(state, batch))

    def numbered(self, state: TrainState, batch: Batch) -> Batch:
        """The batch, and the number of steps that the state has taken."""
        return {**batch, "step": self.optimizer_state(state)["count"]}


class NnxDrawing(NnxForm):
    """NNX. Each batch has a field ``step``: how many steps the optimizer has taken."""

    draws: ClassVar[bool] = True

    @cached_property
    def loss(self) -> OnMesh:
        """The forward pass, with the next step's draws."""
        return self.compile(lambda state, batch: self.forward(state[0], self.numbered(state, batch)), nnx.jit)

    @cached_property
    def gradients(self) -> OnMesh:
        """The gradients, with the next step's draws, sharded as the parameters."""

        def drawn(state: State, batch: Batch) -> Tree:
            _, gradients = self.loss_and_gradients(state[0], self.numbered(state, batch))
            return nnx.to_pure_dict(gradients)  # type: ignore[no-any-return]

        return self.compile(drawn, nnx.jit)

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        """The train step, before ``nnx.jit``."""
        return super().step(state, self.numbered(state, batch))

    def numbered(self, state: State, batch: Batch) -> Batch:
        """The batch, and the number of steps that the optimizer has taken."""
        return {**batch, "step": state[1].step[...]}


class NnxCounting(NnxKeeping):
    """NNX, whose ``nnx.Dropout`` layers keep their keys and count their calls. Evaluated, by tokens, they leave
    everything."""

    draws: ClassVar[bool] = True
