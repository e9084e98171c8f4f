"""``jax.pmap``, which gives every array a leading device dimension, in plain JAX, Flax NNX and Flax Linen.

The state is stacked, a slice (1, …) of each array a device: a copy of everything, kept equal by the page's ``pmean``
alone. A batch of B examples is (devices, B / devices, …). Each framework says how its state of one device is made,
opened for differentiation, and updated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
import optax
from flax import jax_utils, nnx
from flax import linen as nn
from flax.training import train_state
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl import optimizers
from reference_impl.forms import linen_form, nnx_form
from reference_impl.forms.base import Form, TrainState
from reference_impl.mapping import Axes
from reference_impl.models.layout import Whole

AXIS = "data"

Opened = tuple[Callable[[Any, Batch], jax.Array], Any]
"""The mean loss of one device's parameters and examples, and those parameters."""


class PerDevice:
    """A pmapped function of ``(state, batch)`` that refuses a batch without its device dimension.

    JAX's own words for that are of an axis that cannot be squeezed; and where there are just as many examples as
    devices it says nothing, and gives each device one example for a batch.
    """

    def __init__(self, pmapped: Any, devices: int, batch_axes: dict[str, Axes]) -> None:
        self.pmapped, self.devices, self.batch_axes = pmapped, devices, batch_axes

    def __call__(self, state: Any, batch: Batch) -> Any:
        """Run it. Raises ``ValueError`` naming the field's shape and the number of devices."""
        for name, axes in self.batch_axes.items():
            shape = batch[name].shape
            if len(shape) != 1 + len(axes) or shape[0] != self.devices:
                raise ValueError(
                    f"batch field {name!r} of shape {shape} does not begin with a dimension of {self.devices} devices "
                    f"before that of its examples: shard_batch gives it one"
                )
        return self.pmapped(state, batch)

    def lower(self, state: Any, batch: Any) -> Any:
        """Lower it ahead of time."""
        return self.pmapped.lower(state, batch)


class Pmap(Form):
    """The page's per-device program under ``jax.pmap``; a subclass is a framework."""

    explicit = True
    device_dimension = True

    def create(self, key: jax.Array) -> Any:
        """The framework's state for one device."""
        raise NotImplementedError

    def hold(self, state: Any, parameters: Tree) -> Any:
        """A state of one device with these canonical values for parameters."""
        raise NotImplementedError

    def opened(self, state: Any) -> Opened:
        """One device's state as a function to differentiate, and where."""
        raise NotImplementedError

    def update(self, state: Any, gradients: Any) -> Any:
        """One device's state after the optimizer."""
        raise NotImplementedError

    def canonical(self, state: Any) -> tuple[Tree, Tree]:
        """The canonical trees of parameters and optimizer state, of a stacked state or of one device's."""
        raise NotImplementedError

    @cached_property
    def transform(self) -> optax.GradientTransformation:
        """The optimizer in optax's form."""
        return optimizers.transformation(self.optimizer)

    def init(self, key: jax.Array) -> Any:
        """The same state on every device."""
        return self.replicate(jax.jit(self.create)(key))

    def load(self, parameters: Tree) -> Any:
        """These canonical host values on every device."""
        return self.replicate(self.hold(jax.jit(self.create)(jax.random.key(0)), parameters))

    def replicate(self, state: Any) -> Any:
        """One device's state, stacked (devices, …)."""
        copies = self.mesh.size
        stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (copies, *np.shape(leaf))), state)
        return jax.device_put(stacked, self.on_mesh(PartitionSpec(AXIS)))

    def shard_batch(self, batch: Batch) -> dict[str, jax.Array]:
        """The batch (devices, B / devices, …). Raises ``ValueError`` where B does not divide."""
        self.check_divides(batch)
        stacked = {name: value.reshape(self.mesh.size, -1, *value.shape[1:]) for name, value in batch.items()}
        return jax.device_put(stacked, self.on_mesh(PartitionSpec(AXIS)))

    @cached_property
    def train_step(self) -> PerDevice:
        """``(state, batch) → (state, {"loss"})``; the state is donated."""
        return self.per_device(self.step, out_axes=(0, None), donate_argnums=0)

    @cached_property
    def loss(self) -> PerDevice:
        """The forward pass: scalar mean loss of the global batch."""
        return self.per_device(lambda state, batch: self.page.loss(*self.opened(state), batch), out_axes=None)

    @cached_property
    def gradients(self) -> PerDevice:
        """The averaged gradients."""
        return self.per_device(lambda state, batch: self.loss_and_gradients(state, batch)[1], out_axes=None)

    def parameters(self, state: Any) -> Tree:
        """The canonical parameter tree of global arrays: every device's own copy."""
        return self.own_copies(self.canonical(state)[0])

    def optimizer_state(self, state: Any) -> Tree:
        """The canonical optimizer tree of global arrays: every device's own copy."""
        return self.own_copies(self.canonical(state)[1])

    def per_device(self, function: Callable[..., Any], **options: Any) -> PerDevice:
        """``function`` pmapped over the mesh's devices."""
        pmapped = jax.pmap(function, axis_name=AXIS, devices=list(self.mesh.devices.flat), **options)
        return PerDevice(pmapped, self.mesh.size, self.network.batch_axes)

    def step(self, state: Any, batch: Batch) -> tuple[Any, dict[str, jax.Array]]:
        """The train step as one device sees it."""
        loss, gradients = self.loss_and_gradients(state, batch)
        with jax.named_scope("optimizer"):
            return self.update(state, gradients), {"loss": loss}

    def loss_and_gradients(self, state: Any, batch: Batch) -> tuple[jax.Array, Any]:
        """The page's, of an opened state."""
        loss, gradients = self.page.loss_and_gradients(*self.opened(state), batch)
        return loss, gradients

    @cached_property
    def own_copies(self) -> Callable[[Any], Any]:
        """Arrays (devices, …) as global ones without that dimension, of which every device holds its own slice.

        That they are replicas is for training to have kept: nothing moves here, and nothing is compared.
        """
        return jax.jit(
            jax.shard_map(
                lambda stacked: jax.tree.map(lambda leaf: leaf[0], stacked),
                mesh=self.mesh,
                in_specs=PartitionSpec(AXIS),
                out_specs=PartitionSpec(),
                check_vma=False,
            )
        )


class JaxPmap(Pmap):
    """State is a `TrainState` of plain dicts."""

    def create(self, key: jax.Array) -> TrainState:
        """Parameters and the optimizer's zeros."""
        parameters = self.network.init(key)
        return TrainState(parameters, self.transform.init(parameters))

    def hold(self, state: TrainState, parameters: Tree) -> TrainState:
        """Zeros are zeros whatever the parameters."""
        return TrainState(dict(parameters), state.optimizer)

    def opened(self, state: TrainState) -> Opened:
        """The model's own loss."""
        return lambda parameters, batch: self.network.loss(parameters, batch, Whole()), state.parameters

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
        model = nnx_form.MODULES[type(self.network)](self.network, None, rngs=nnx.Rngs(key))
        return model, nnx.Optimizer(model, self.transform, wrt=nnx.Param)

    @cached_property
    def graph(self) -> Any:
        """What the objects are besides arrays."""
        return nnx.split(nnx.eval_shape(self.objects, jax.random.key(0)))[0]

    def create(self, key: jax.Array) -> nnx.State:
        """The objects' arrays."""
        return nnx.state(self.objects(key))

    def hold(self, state: nnx.State, parameters: Tree) -> nnx.State:
        """The model's arrays replaced."""
        model, optimizer = nnx.merge(self.graph, state)
        nnx.update(model, nnx.State(dict(parameters)))
        return nnx.state((model, optimizer))

    def opened(self, state: nnx.State) -> Opened:
        """The model's parameters, and the module that takes them."""
        graph, parameters, rest = nnx.split(nnx.merge(self.graph, state)[0], nnx.Param, ...)

        def local_loss(parameters: nnx.State, batch: Batch) -> jax.Array:
            logits_BxC = nnx.merge(graph, parameters, rest)(batch["x"], Whole())
            return self.network.mean_loss(logits_BxC, batch["y"])

        return local_loss, parameters

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
        return linen_form.MODULES[type(self.network)](self.network)

    def create(self, key: jax.Array) -> train_state.TrainState:
        """Parameters out of the boxes of their annotations, and the optimizer's zeros."""
        parameters = nn.unbox(linen_form.born_parameters(self, self.module, key))
        return train_state.TrainState.create(apply_fn=self.module.apply, params=parameters, tx=self.transform)

    def hold(self, state: train_state.TrainState, parameters: Tree) -> train_state.TrainState:
        """The parameters replaced."""
        return state.replace(params=dict(parameters))

    def replicate(self, state: train_state.TrainState) -> train_state.TrainState:
        """Flax's own copies, on a mesh axis of pmap's name: on one of another name the second step compiles again."""
        return jax_utils.replicate(state, list(self.mesh.devices.flat), axis_name=AXIS)

    def opened(self, state: train_state.TrainState) -> Opened:
        """The state brings the module along."""

        def local_loss(parameters: Tree, batch: Batch) -> jax.Array:
            logits_BxC = state.apply_fn({"params": parameters}, batch["x"], Whole())
            return self.network.mean_loss(logits_BxC, batch["y"])

        return local_loss, state.params

    def update(self, state: train_state.TrainState, gradients: Tree) -> train_state.TrainState:
        """The optimizer, as Flax has it."""
        return state.apply_gradients(grads=gradients)

    def canonical(self, state: train_state.TrainState) -> tuple[Tree, Tree]:
        """Both are in the state."""
        return state.params, optimizers.canonical(self.optimizer, state.opt_state)
