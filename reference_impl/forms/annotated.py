"""Annotated strategies in plain JAX: the page's three mappings, handed to the compiler.

The compute mapping binds everything that enters the computation, parameters too: for FSDP that constraint *is* the
all-gather and its transpose the reduce-scatter. The storage mappings bind everything that leaves the step. With
storage annotated alone the compiler is free to move activations instead, and does.
"""

from __future__ import annotations

from functools import cached_property

import jax
import optax
from jax.lax import with_sharding_constraint
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl import optimizers
from reference_impl.forms.base import Form, OnMesh, TrainState
from reference_impl.mapping import Axes, Mapping
from reference_impl.models.mlp import Whole


class Annotated(Whole):
    """Activations (batch, F) laid out by a compute mapping as they leave a layer."""

    def __init__(self, compute: Mapping) -> None:
        self.compute = compute

    def leave(self, y_BxF: jax.Array, axes: Axes) -> jax.Array:
        """The product of a dense layer, constrained."""
        return with_sharding_constraint(y_BxF, self.compute.spec(("batch", axes[-1])))


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
        """The optimizer: elementwise, wherever the shards are."""
        with jax.named_scope("optimizer"):
            updates, optimizer = self.transform.update(gradients, state.optimizer, state.parameters)
            return TrainState(optax.apply_updates(state.parameters, updates), optimizer)

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The loss of the global batch, every parameter first brought to its compute layout."""
        with jax.named_scope("forward"):
            in_use = with_sharding_constraint(parameters, self.page.COMPUTE.specs(self.network.axes))
            return self.network.loss(in_use, batch, Annotated(self.page.COMPUTE))

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The loss, and its gradients back in the storage layout."""
        loss, gradients = jax.value_and_grad(self.forward)(parameters, batch)
        with jax.named_scope("synchronize_gradients"):
            return loss, with_sharding_constraint(gradients, self.page.PARAMETERS.specs(self.network.axes))
