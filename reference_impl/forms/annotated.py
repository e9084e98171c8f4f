"""Annotated strategies in plain JAX: the page's three mappings, handed to the compiler.

The compute mapping binds everything that enters the computation, parameters too: for FSDP that constraint *is* the
all-gather and its transpose the reduce-scatter. The storage mappings bind everything that leaves the step. With
storage annotated alone the compiler is free to move activations instead, and does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.lax import with_sharding_constraint
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl import optimizers
from reference_impl.forms.base import Form, OnMesh, TrainState
from reference_impl.mapping import Axes, Mapping
from reference_impl.models.layout import Whole


class Annotated(Whole):
    """Activations laid out by a compute mapping as they enter and leave a region."""

    def __init__(self, compute: Mapping) -> None:
        self.compute = compute

    def enter(self, x: jax.Array, into: str) -> jax.Array:
        """A whole activation, where the kernel's columns are split."""
        return self.constrain(x, "length", ("embed",)) if x.ndim > 2 and self.compute.of(into) else x

    def leave(self, y: jax.Array, over: str, axes: Axes) -> jax.Array:
        """A product, constrained: between regions in the layout of ``sequence``, within one in that of ``length``."""
        return self.constrain(y, "length" if self.compute.split(axes) else "sequence", axes)

    def constrain(self, x: jax.Array, length: str, axes: Axes) -> jax.Array:
        """``x`` (batch, *axes) or (batch, length, *axes) laid out."""
        leading = ("batch", length)[: x.ndim - len(axes)]
        return with_sharding_constraint(x, self.compute.spec((*leading, *axes)))

    def products(
        self, subscripts: str, x: jax.Array, kernels: Sequence[jax.Array], over: str, axes: Axes
    ) -> list[jax.Array]:
        """Several products of one activation, whose gradient is reduced once for all of them."""
        return [self.leave(y, over, axes) for y in fan_out(subscripts, x, tuple(kernels))]

    def share(self, w: jax.Array, axes: Axes) -> jax.Array:
        """A copy for every part of the batch: the gradients of all uses are added there, and then reduced once."""
        sizes = jax.sharding.get_abstract_mesh().shape
        parts = prod(sizes[axis] for axis in self.compute.of("batch"))
        copies = jnp.broadcast_to(w, (parts, *w.shape))
        return with_sharding_constraint(copies, self.compute.spec(("batch", *axes)))

    def use(self, function: Callable[[jax.Array, jax.Array], jax.Array], w: jax.Array, x: jax.Array) -> jax.Array:
        """Every part of the batch with its own copy."""
        y = jax.vmap(function)(w, x.reshape(len(w), -1, *x.shape[1:]))
        return y.reshape(-1, *y.shape[2:])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fan_out(subscripts: str, x: jax.Array, kernels: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """The einsum of ``x`` with each kernel; its gradient by ``x`` is one einsum, of all of them.

    As a sum of several it would be reduced several times: not every compiler adds before it reduces.
    """
    return tuple(jnp.einsum(subscripts, x, w) for w in kernels)


def fan_in(
    subscripts: str, operands: tuple[jax.Array, tuple[jax.Array, ...]], gradients: tuple[jax.Array, ...]
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The gradients of `fan_out`."""
    x, kernels = operands
    of_x, of_w, of_y = re.split(",|->", subscripts)
    into_x = jnp.einsum(f"z{of_y},z{of_w}->{of_x}", jnp.stack(gradients), jnp.stack(kernels))
    return into_x, tuple(jnp.einsum(f"{of_x},{of_y}->{of_w}", x, gradient) for gradient in gradients)


fan_out.defvjp(lambda subscripts, x, kernels: (fan_out(subscripts, x, kernels), (x, kernels)), fan_in)


class JaxForm(Form):
    """State is a `TrainState` of plain dicts; every function is ``jax.jit`` with the storage layout as output."""

    @cached_property
    def transform(self) -> optax.GradientTransformation:
        """The optimizer in optax's form."""
        return optimizers.transformation(self.optimizer)

    @cached_property
    def state_specs(self) -> TrainState:
        """The storage layout of a whole state."""
        shapes = jax.eval_shape(self.network.init, jax.random.key(0))
        moments = self.page.OPTIMIZER.specs(self.network.axes)
        return TrainState(
            self.page.PARAMETERS.specs(self.network.axes), optimizers.specs(self.transform, shapes, moments)
        )

    def init(self, key: jax.Array) -> TrainState:
        """A state that is sharded from birth: no device ever holds a whole sharded parameter."""
        return self.start(self.init_parameters(key))

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
        """The gradients, laid out as the parameters."""
        return self.compile(
            lambda state, batch: self.loss_and_gradients(state.parameters, batch)[1],
            out_shardings=self.on_mesh(self.state_specs.parameters),
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
        """The optimizer, elementwise: it updates the part of a parameter whose state it keeps."""
        with jax.named_scope("optimizer"):
            own = with_sharding_constraint(state.parameters, self.page.OPTIMIZER.specs(self.network.axes))
            parameters, optimizer = self.optimize(own, state.optimizer, gradients)
            stored = with_sharding_constraint(parameters, self.page.PARAMETERS.specs(self.network.axes))
            return TrainState(stored, optimizer)

    def optimize(self, parameters: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
        """The new parameters and optimizer state, leaf by leaf."""
        updates, state = self.transform.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The loss of the global batch, every parameter first brought to its compute layout."""
        with jax.named_scope("forward"):
            in_use = with_sharding_constraint(parameters, self.page.COMPUTE.specs(self.network.axes))
            return self.network.loss(in_use, batch, Annotated(self.page.COMPUTE))

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The loss, and its gradients back in the storage layout."""
        loss, gradients = jax.value_and_grad(self.forward)(parameters, batch)
        with jax.named_scope("synchronize_gradients"):
            return loss, with_sharding_constraint(gradients, self.page.GRADIENTS.specs(self.network.axes))
