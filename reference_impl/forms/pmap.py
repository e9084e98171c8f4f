"""``jax.pmap``: one program on every device, and arrays with a leading device dimension.

Each device holds a slice (1, …) of every array of the state: a copy of everything, which nothing but the page's
``pmean`` keeps equal. A batch of B examples is (devices, B / devices, …). Frameworks differ in `pmap_frameworks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl import optimizers
from reference_impl.evaluation import Evaluates, Totals, totals
from reference_impl.forms.base import Form, abstract_key
from reference_impl.mapping import Axes
from reference_impl.page import Local, PmapPage

AXIS = "data"

Opened = tuple[Callable[[Any, jax.Array], jax.Array], Any]
"""One device's model, as a function of parameters and inputs, and its parameters."""


class PerDevice:
    """A pmapped function of ``(state, batch)`` that refuses a batch without its device dimension.

    JAX's own message is about an axis that cannot be squeezed. Where there are as many examples as devices, JAX raises
    nothing and gives each device one example as its batch.
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


@dataclass(frozen=True)
class Pmap(Evaluates, Form, ABC):
    """The page's per-device program under ``jax.pmap``; a subclass is a framework."""

    page: PmapPage

    explicit: ClassVar[bool] = True
    device_dimension: ClassVar[bool] = True

    @abstractmethod
    def create(self, key: jax.Array) -> Any:
        """The framework's state for one device."""

    @abstractmethod
    def hold(self, state: Any, parameters: Tree) -> Any:
        """A state of one device with these canonical values for parameters."""

    @abstractmethod
    def opened(self, state: Any) -> Opened:
        """One device's state as a function of its parameters."""

    def in_evaluation(self, state: Any) -> Opened:
        """The same in its mode of evaluation; most models have but one."""
        return self.opened(state)

    @abstractmethod
    def update(self, state: Any, gradients: Any) -> Any:
        """One device's state after the optimizer."""

    @abstractmethod
    def canonical(self, state: Any) -> tuple[Tree, Tree]:
        """The canonical trees of parameters and optimizer state, of a stacked state or of one device's."""

    @cached_property
    def transform(self) -> optax.GradientTransformation:
        """The optimizer in optax's form."""
        return optimizers.transformation(self.optimizer)

    def init(self, key: jax.Array) -> Any:
        """The same state on every device."""
        return self.replicate(self.created(key))

    def load(self, parameters: Tree) -> Any:
        """These canonical host values on every device."""
        return self.replicate(self.hold(self.created(jax.random.key(0)), parameters))

    @cached_property
    def created(self) -> Callable[[jax.Array], Any]:
        """`create`, jitted."""
        return jax.jit(self.create)

    def replicate(self, state: Any) -> Any:
        """One device's state, stacked (devices, …)."""
        copies = self.mesh.size
        stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (copies, *np.shape(leaf))), state)
        return jax.device_put(stacked, self.on_mesh(PartitionSpec(AXIS)))

    def abstract_state(self) -> Any:
        """What `init` returns, without its arrays."""
        sharding = self.on_mesh(PartitionSpec(AXIS))
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.mesh.size, *leaf.shape), leaf.dtype, sharding=sharding),
            jax.eval_shape(self.create, abstract_key()),
        )

    def place(self, batch: Batch) -> dict[str, tuple[np.ndarray, NamedSharding]]:
        """Each field (devices, B / devices, …), and how it is placed. Raises ``ValueError`` where B does not divide."""
        self.check_divides(batch)
        sharding = self.on_mesh(PartitionSpec(AXIS))
        return {name: (value.reshape(self.mesh.size, -1, *value.shape[1:]), sharding) for name, value in batch.items()}

    @cached_property
    def train_step(self) -> PerDevice:
        """``(state, batch) → (state, {"loss"})``; the state is donated."""
        return self.per_device(self.step, out_axes=(0, None), donate_argnums=0)

    @cached_property
    def loss(self) -> PerDevice:
        """The forward pass: scalar mean loss of the global batch."""
        return self.per_device(lambda state, batch: self.page.loss(*self.local(state), batch), out_axes=None)

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
        """The page's, of the loss of this state."""
        return self.page.loss_and_gradients(*self.local(state), batch)

    def local(self, state: Any) -> tuple[Local, Any]:
        """What one device computes of its examples, and its parameters."""
        apply, parameters = self.opened(state)

        def loss(parameters: Any, batch: Batch) -> jax.Array:
            return self.network.loss_of(apply(parameters, batch["x"]), batch)

        return Local(loss, self.network.value_and_grad(loss), self.network.count), parameters

    @cached_property
    def totals(self) -> PerDevice:
        """`evaluate` of a placed batch."""

        def evaluated(state: Any, batch: Batch) -> Totals:
            apply, parameters = self.in_evaluation(state)
            return self.page.evaluate(totals(apply(parameters, batch["x"]), batch))

        return self.per_device(evaluated, out_axes=None)

    @cached_property
    def own_copies(self) -> Callable[[Any], Any]:
        """Stacked arrays (devices, …) as global arrays (…), of which each device holds its own slice as a replica.

        Nothing moves here and nothing is compared: whether the copies are equal is up to training.
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
