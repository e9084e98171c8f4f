"""NNX models whose layers keep state of their own beside parameters: running statistics, keys, counts of calls."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
from flax import nnx
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Contract, Tree
from reference_impl.evaluation import Evaluates, Totals, totals
from reference_impl.forms.base import OnMesh
from reference_impl.forms.nnx_form import MODULES, NnxForm, State
from reference_impl.forms.pmap import AXIS, Opened
from reference_impl.forms.pmap_frameworks import NnxPmap
from reference_impl.models.layout import Layout
from reference_impl.page import Local


class NnxKeeping(Evaluates, NnxForm):
    """That state is auxiliary, and replicated. A train step changes it; ``loss`` and ``gradients`` leave it as it is,
    and evaluation runs the model in its mode of evaluation."""

    @cached_property
    def contract(self) -> Contract:
        """As of every form, and the auxiliary state is replicated."""
        return replace(super().contract, auxiliary={"*": PartitionSpec()})

    @cached_property
    def loss(self) -> OnMesh:
        """The forward pass of the next step."""
        return self.compile(lambda state, batch: self.forward(nnx.clone(state[0]), batch), nnx.jit)

    @cached_property
    def gradients(self) -> OnMesh:
        """The gradients of the next step, sharded as the parameters."""

        def next_gradients(state: State, batch: Batch) -> Tree:
            _, gradients = self.loss_and_gradients(nnx.clone(state[0]), batch)
            return nnx.to_pure_dict(gradients)  # type: ignore[no-any-return]

        return self.compile(next_gradients, nnx.jit)

    @cached_property
    def totals(self) -> OnMesh:
        """`evaluate` of a placed batch."""

        def evaluated(state: State, batch: Batch) -> Totals:
            model = nnx.clone(state[0])
            model.eval()
            return totals(self.outputs(model, batch), batch)

        return self.compile(evaluated, nnx.jit)

    def auxiliary(self, state: State) -> Tree:
        """What the layers keep, by the layer's name."""
        return nnx.to_pure_dict(nnx.state(state[0], nnx.Not(nnx.Param)))  # type: ignore[no-any-return]


class NnxAveraging(NnxKeeping):
    """Norms that average the statistics of each batch."""

    def single_device(self, dtype: str) -> NnxAveraging:
        """The same on one device, in float32: a step changes there what it changes on the mesh."""
        return replace(self, mesh_axes=dict.fromkeys(self.mesh_axes, 1))


class NnxAveragingPmap(NnxPmap):
    """The same by ``pmap``: the norms are told the axis's name, and what the layers keep leaves the function that is
    differentiated beside its loss."""

    @cached_property
    def contract(self) -> Contract:
        """As of every form, and the auxiliary state is replicated."""
        return replace(super().contract, auxiliary={"*": PartitionSpec()})

    def single_device(self, dtype: str) -> NnxAveragingPmap:
        """As that of `NnxAveraging`."""
        return replace(self, mesh_axes=dict.fromkeys(self.mesh_axes, 1))

    def objects(self, key: jax.Array) -> tuple[nnx.Module, nnx.Optimizer]:
        """The model, without annotations, and its optimizer."""
        model = MODULES[type(self.network.plain)](self.network.plain, None, axis_name=AXIS, rngs=nnx.Rngs(key))
        return model, nnx.Optimizer(model, self.transform, wrt=nnx.Param)

    def in_evaluation(self, state: nnx.State) -> Opened:
        """With running statistics in place of the batch's."""
        model, _ = nnx.merge(self.graph, state)
        model.eval()
        graph, parameters, rest = nnx.split(model, nnx.Param, ...)
        return lambda parameters, x: nnx.merge(graph, parameters, rest)(x, Layout()), parameters

    def local(self, state: nnx.State) -> tuple[Local, Any]:
        """What one device computes of its examples, what its layers keep beside the loss, and its parameters."""
        graph, parameters, rest = nnx.split(nnx.merge(self.graph, state)[0], nnx.Param, ...)

        def keeping(parameters: nnx.State, batch: Batch) -> tuple[jax.Array, nnx.State]:
            model = nnx.merge(graph, parameters, rest, copy=True)
            loss = self.network.loss_of(model(batch["x"], Layout()), batch)
            return loss, nnx.state(model, nnx.Not(nnx.Param))

        return Local(
            lambda parameters, batch: keeping(parameters, batch)[0],
            jax.value_and_grad(keeping, has_aux=True),
            self.network.count,
        ), parameters

    def step(self, state: nnx.State, batch: Batch) -> tuple[nnx.State, dict[str, jax.Array]]:
        """The train step as one device sees it."""
        (loss, kept), gradients = self.loss_and_gradients(state, batch)
        model, optimizer = nnx.merge(self.graph, state)
        nnx.update(model, kept)
        with jax.named_scope("optimizer"):
            return self.update(nnx.state((model, optimizer)), gradients), {"loss": loss}

    def canonical(self, state: nnx.State) -> tuple[Tree, Tree]:
        """The model's parameters, and the optimizer's part of the state."""
        model, _ = nnx.merge(self.graph, state)
        return nnx.to_pure_dict(nnx.state(model, nnx.Param)), super().canonical(state)[1]

    def auxiliary(self, state: nnx.State) -> Tree:
        """What the layers keep, by the layer's name: every device's own copy."""
        model, _ = nnx.merge(self.graph, state)
        return self.own_copies(nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.Param))))  # type: ignore[no-any-return]
