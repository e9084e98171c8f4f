"""What a device's state is under ``pmap``: in plain JAX, split from NNX objects, and as Linen's ``TrainState``."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import jax_utils, nnx
from flax import linen as nn
from flax.training import train_state

from meshproof.contract import Batch, Contract, Tree
from reference_impl import optimizers
from reference_impl.forms import linen_form, nnx_form
from reference_impl.forms.base import TrainState, abstract_key
from reference_impl.forms.pmap import AXIS, Opened, PerDevice, Pmap
from reference_impl.models.layout import Layout
from reference_impl.page import Local
from reference_impl.truth import ScoredMLPTruth

NAMED = {"axis_name": AXIS} if "axis_name" in signature(jax_utils.replicate).parameters else {}
"""Flax before 0.12.7 takes no axis name: its copies are sharded differently from what ``pmap`` of JAX 0.8 returns."""


class JaxPmap(Pmap):
    """State is a `TrainState` of plain dicts."""

    def create(self, key: jax.Array) -> TrainState:
        """Parameters and the optimizer's zeros."""
        parameters = self.network.init(key)
        return TrainState(parameters, self.transform.init(parameters))

    def hold(self, state: TrainState, parameters: Tree) -> TrainState:
        """The optimizer's zeros do not depend on the parameters."""
        return TrainState(dict(parameters), state.optimizer)

    def opened(self, state: TrainState) -> Opened:
        """The model itself."""
        return lambda parameters, x: self.network.apply(parameters, x, Layout()), state.parameters

    def update(self, state: TrainState, gradients: Tree) -> TrainState:
        """Optax, leaf by leaf."""
        updates, optimizer = self.transform.update(gradients, state.optimizer, state.parameters)
        return TrainState(optax.apply_updates(state.parameters, updates), optimizer)

    def canonical(self, state: TrainState) -> tuple[Tree, Tree]:
        """Both are in the state."""
        return state.parameters, optimizers.canonical(self.optimizer, state.optimizer)


class NnxPmap(Pmap):
    """State is an ``nnx.State``, split from a model and its optimizer; the step merges and splits it again."""

    framework = "nnx"

    def objects(self, key: jax.Array) -> tuple[nnx.Module, nnx.Optimizer]:
        """The model, without annotations, and its optimizer."""
        model = nnx_form.MODULES[type(self.network.plain)](self.network.plain, None, rngs=nnx.Rngs(key))
        return model, nnx.Optimizer(model, self.transform, wrt=nnx.Param)

    @cached_property
    def graph(self) -> Any:
        """What the objects are besides arrays."""
        return nnx.split(nnx.eval_shape(self.objects, abstract_key()))[0]

    def create(self, key: jax.Array) -> nnx.State:
        """The objects' arrays."""
        return nnx.state(self.objects(key))

    def hold(self, state: nnx.State, parameters: Tree) -> nnx.State:
        """The model's arrays replaced."""
        model, optimizer = nnx.merge(self.graph, state)
        nnx.update(model, nnx.State(dict(parameters)))
        return nnx.state((model, optimizer))

    def opened(self, state: nnx.State) -> Opened:
        """The module, merged with the parameters that it is called with."""
        graph, parameters, rest = nnx.split(nnx.merge(self.graph, state)[0], nnx.Param, ...)
        apply = self.network.applied(lambda parameters, x: nnx.merge(graph, parameters, rest)(x, Layout()))
        return apply, parameters

    def update(self, state: nnx.State, gradients: nnx.State) -> nnx.State:
        """The optimizer updates both objects in place."""
        model, optimizer = nnx.merge(self.graph, state)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer))

    @cached_property
    def gradients(self) -> PerDevice:
        """The averaged gradients as a canonical tree."""
        return self.per_device(
            lambda state, batch: nnx.to_pure_dict(self.loss_and_gradients(state, batch)[1]), out_axes=None
        )

    def canonical(self, state: nnx.State) -> tuple[Tree, Tree]:
        """The model's part of the state, and the optimizer's."""
        model, optimizer = nnx.to_pure_dict(state).values()
        return model, optimizers.canonical(self.optimizer, optimizer["opt_state"])


class LinenPmap(Pmap):
    """State is Flax's ``TrainState``, copied by ``flax.jax_utils.replicate``."""

    framework = "linen"

    @cached_property
    def module(self) -> nn.Module:
        """The model as a module."""
        return linen_form.MODULES[type(self.network.plain)](self.network.plain)

    def create(self, key: jax.Array) -> train_state.TrainState:
        """Parameters out of the boxes of their annotations, and the optimizer's zeros."""
        parameters = nn.unbox(linen_form.boxed_parameters(self, self.module, key))
        state = train_state.TrainState.create(apply_fn=self.module.apply, params=parameters, tx=self.transform)
        return state.replace(step=jnp.int32(0))  # as `LinenForm.create`

    def hold(self, state: train_state.TrainState, parameters: Tree) -> train_state.TrainState:
        """The parameters replaced."""
        return state.replace(params=dict(parameters))

    def replicate(self, state: train_state.TrainState) -> train_state.TrainState:
        """Flax's own copies, on a mesh axis of pmap's name: on one of another name the second step compiles again."""
        return jax_utils.replicate(state, list(self.mesh.devices.flat), **NAMED)

    def opened(self, state: train_state.TrainState) -> Opened:
        """The module's ``apply``, which is part of the state."""
        apply = self.network.applied(lambda parameters, x: state.apply_fn({"params": parameters}, x, Layout()))
        return apply, state.params

    def update(self, state: train_state.TrainState, gradients: Tree) -> train_state.TrainState:
        """The optimizer, as Flax has it."""
        return state.apply_gradients(grads=gradients)

    def canonical(self, state: train_state.TrainState) -> tuple[Tree, Tree]:
        """Both are in the state."""
        return state.params, optimizers.canonical(self.optimizer, state.opt_state)


class ScoredLinenPmap(LinenPmap):
    """A step that tells the accuracy of its batch, which ``has_aux`` takes out of the function that is differentiated.

    It is averaged with the loss and the gradients: what is left out there is that of one device.
    """

    @property
    def truth(self) -> ScoredMLPTruth:
        """That of the model, and the accuracy of each step."""
        return ScoredMLPTruth(**vars(super().truth))

    @cached_property
    def contract(self) -> Contract:
        """As of every form, but that a step reduces two metrics."""
        contract = super().contract
        step = (
            line if line.payload != "metrics" else replace(line, bytes=2 * line.bytes) for line in contract.step or ()
        )
        return replace(contract, step=tuple(step))

    def local(self, state: train_state.TrainState) -> tuple[Local, Any]:
        """What one device computes of its examples, and its parameters."""
        apply, parameters = self.opened(state)

        def scored(parameters: Tree, batch: Batch) -> tuple[jax.Array, jax.Array]:
            logits_BxC = apply(parameters, batch["x"])
            return self.network.loss_of(logits_BxC, batch), (logits_BxC.argmax(-1) == batch["y"]).mean()

        def loss(parameters: Tree, batch: Batch) -> jax.Array:
            return scored(parameters, batch)[0]

        return Local(loss, jax.value_and_grad(scored, has_aux=True), self.network.count), parameters

    def step(self, state: train_state.TrainState, batch: Batch) -> tuple[Any, dict[str, jax.Array]]:
        """The train step as one device sees it."""
        (loss, accuracy), gradients = self.loss_and_gradients(state, batch)
        with jax.named_scope("optimizer"):
            return self.update(state, gradients), {"loss": loss, "accuracy": accuracy}
