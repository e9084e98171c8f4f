"""Annotated strategies in plain JAX: the page's three mappings, handed to the compiler.

The compute mapping constrains everything that enters the computation, parameters too: for FSDP that constraint *is*
the all-gather, and its transpose the reduce-scatter. The storage mappings constrain everything that leaves the step.
Where only storage is annotated, the compiler is free to move activations instead, and does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import jax
import optax
from jax.lax import optimization_barrier
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl import optimizers
from reference_impl.forms.base import Form, OnMesh, TrainState, abstract_key
from reference_impl.forms.layouts import Annotated
from reference_impl.mapping import Mapping


class JaxForm(Form):
    """State is a `TrainState` of plain dicts; every function is ``jax.jit`` with the storage layout as output."""

    layout: ClassVar[type[Annotated]] = Annotated

    @cached_property
    def transform(self) -> optax.GradientTransformation:
        """The optimizer in optax's form."""
        return optimizers.transformation(self.optimizer)

    @cached_property
    def state_specs(self) -> TrainState:
        """The storage layout of a whole state."""
        shapes = jax.eval_shape(self.network.init, abstract_key())
        moments = self.page.optimizer.specs(self.network.axes)
        return TrainState(
            self.page.parameters.specs(self.network.axes), optimizers.specs(self.transform, shapes, moments)
        )

    @cached_property
    def init(self) -> OnMesh:
        """Key to a state, sharded by ``out_shardings``: no device ever holds a whole sharded parameter."""
        return self.compile(
            lambda key: self.start.jitted(self.init_parameters.jitted(key)),
            out_shardings=self.on_mesh(self.state_specs),
        )

    def abstract_state(self) -> TrainState:
        """What `init` returns, without its arrays."""
        return self.shard(self.init.shapes(abstract_key()), self.state_specs)  # type: ignore[no-any-return]

    def load(self, parameters: Tree) -> TrainState:
        """A state that holds these canonical host values."""
        return self.start(jax.device_put(dict(parameters), self.on_mesh(self.state_specs.parameters)))

    @cached_property
    def init_parameters(self) -> OnMesh:
        """Key to placed parameters."""
        return self.compile(self.network.init, out_shardings=self.on_mesh(self.state_specs.parameters))

    @cached_property
    def start(self) -> OnMesh:
        """Placed parameters to a state with the optimizer's zeros; the parameters are donated."""
        return self.compile(
            lambda parameters: TrainState(parameters, self.transform.init(parameters)),
            donate_argnums=0,
            out_shardings=self.on_mesh(self.state_specs),
        )

    @cached_property
    def train_step(self) -> OnMesh:
        """``(state, batch) → (state, {"loss"})``; the state is donated."""
        shardings = (self.on_mesh(self.state_specs), self.on_mesh({"loss": PartitionSpec()}))
        return self.compile(self.step, donate_argnums=0, out_shardings=shardings)

    @cached_property
    def loss(self) -> OnMesh:
        """The forward pass: scalar mean loss of the global batch."""
        return self.compile(lambda state, batch: self.forward(state.parameters, batch))

    @cached_property
    def gradients(self) -> OnMesh:
        """The gradients, sharded by the page's mapping."""
        return self.compile(
            lambda state, batch: self.loss_and_gradients(state.parameters, batch)[1],
            out_shardings=self.on_mesh(self.page.gradients.specs(self.network.axes)),
        )

    def parameters(self, state: TrainState) -> Tree:
        """The canonical parameter tree of global arrays."""
        return state.parameters

    def optimizer_state(self, state: TrainState) -> Tree:
        """The canonical optimizer tree of global arrays."""
        return optimizers.canonical(self.optimizer, state.optimizer)

    def step(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, jax.Array]]:
        """The train step, before ``jit``."""
        loss, gradients = self.loss_and_gradients(state.parameters, batch)
        return self.update(state, gradients), {"loss": loss}

    def update(self, state: TrainState, gradients: Tree) -> TrainState:
        """The optimizer, elementwise: each device updates the part of a parameter whose optimizer state it holds.

        If gradients are sharded differently from the optimizer state, a barrier keeps the compiler from turning
        all-reduce + slice into a reduce-scatter.
        """
        with jax.named_scope("optimizer"):
            if self.page.gradients != self.page.optimizer:
                gradients = optimization_barrier(gradients)
            own, gradients = (
                self.reshard(state.parameters, self.page.optimizer),
                self.reshard(gradients, self.page.optimizer),
            )
            parameters, optimizer = self.optimize(own, state.optimizer, gradients)
            return TrainState(self.reshard(parameters, self.page.parameters), optimizer)

    def optimize(self, parameters: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
        """The new parameters and optimizer state, leaf by leaf."""
        updates, state = self.transform.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The loss of the global batch."""
        return self.loss_by(self.page.compute, parameters, batch)

    def loss_by(self, compute: Mapping, parameters: Tree, batch: Batch) -> jax.Array:
        """The loss. Parameters are constrained to their compute layout first, or just before their block runs."""
        layout = self.layout(compute, self.page.parameters)
        with jax.named_scope("forward"):
            return self.network.loss(self.network.reshard(parameters, layout), batch, layout)

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The loss of the global batch, and its gradients."""
        return self.differentiate(self.forward, parameters, batch)

    def differentiate(
        self, forward: Callable[[Tree, Batch], jax.Array], parameters: Tree, batch: Batch
    ) -> tuple[jax.Array, Tree]:
        """The loss, and its gradients in their storage layout."""
        loss, gradients = self.network.value_and_grad(forward)(parameters, batch)
        with jax.named_scope("synchronize_gradients"):
            return loss, self.reshard(gradients, self.page.gradients)

    def reshard(self, tree: Tree, mapping: Mapping) -> Any:
        """A tree shaped as the parameters, resharded by a mapping."""
        return self.layout(mapping).reshard(tree, self.network.axes)
