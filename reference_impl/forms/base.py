"""What every form of a strategy shares: its mesh, its data, its truth and its contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import numpy as np
from jax.dtypes import canonicalize_dtype
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from meshproof.contract import Batch, Contract, ModelFlops, Tree, leaves
from reference_impl import compat
from reference_impl.lifecycle.rule_tables import Rule, settle
from reference_impl.mapping import Mapping, make_mesh
from reference_impl.models import Model
from reference_impl.models.mlp import MLP
from reference_impl.optimizers import MOMENTS, Optimizer
from reference_impl.page import Page
from reference_impl.theory.communication import Traffic
from reference_impl.theory.flops import model_flops
from reference_impl.theory.memory import spared
from reference_impl.truth import Adam, ModelTruth

if TYPE_CHECKING:
    from reference_impl.lifecycle.checkpointing import Saving
    from reference_impl.lifecycle.saved_data import Resumable

OVER_PROCESSES = {"data_parallel-linen-mlp", "fsdp-nnx-mlp", "fsdp_tensor_parallel_shard_map-jax-mlp"}
"""What is trained over several processes too: of each framework one, annotated and by hand, on one axis and on two."""


class TrainState(NamedTuple):
    """Everything that a train step replaces: the canonical parameters, and the optimizer's own state."""

    parameters: Any
    optimizer: Any


class OnMesh:
    """A jitted function that is traced, lowered and called under its mesh."""

    def __init__(self, mesh: Mesh, jitted: Any) -> None:
        self.mesh, self.jitted = mesh, jitted

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        with jax.set_mesh(self.mesh):
            return self.jitted(*arguments)

    def lower(self, *arguments: Any) -> Any:
        """Lower it ahead of time; arrays or ``ShapeDtypeStruct`` will do."""
        with jax.set_mesh(self.mesh):
            return self.jitted.lower(*arguments)

    def shapes(self, *arguments: Any) -> Any:
        """What it returns, as ``ShapeDtypeStruct`` without shardings; nothing runs."""
        with jax.set_mesh(self.mesh):
            return jax.eval_shape(self.jitted, *arguments)


def abstract_key() -> jax.ShapeDtypeStruct:
    """A random key's shape and dtype. A real one lies on the process's default device, and on no other mesh."""
    return jax.eval_shape(lambda: jax.random.key(0))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Form:
    """One page on one mesh: ``mesh_axes`` are the ordered axis sizes.

    ``network`` is the model, ``variant`` what the case's id says beyond page, framework, model and mesh. ``devices``
    are those that the mesh is made of, in place of this machine's.
    """

    page: Page
    mesh_axes: dict[str, int]
    optimizer: Optimizer
    network: Model = field(default_factory=MLP)
    variant: str = ""
    batch_size: int = 64
    devices: tuple[jax.Device, ...] = field(default=(), kw_only=True, repr=False)

    framework: ClassVar[str] = "jax"
    explicit: ClassVar[bool] = False
    device_dimension: ClassVar[bool] = False
    axis_type: ClassVar[AxisType] = AxisType.Auto

    def __post_init__(self) -> None:
        """Raises ``ValueError`` where the page's mappings cannot shard this model on this mesh."""
        shapes = dict(leaves(self.network.shapes))
        for mapping in (self.page.compute, self.page.parameters, self.page.gradients, self.page.optimizer):
            for path, axes in leaves(self.network.axes):
                mapping.check(path, axes, shapes[path], self.mesh_axes)

    @property
    def name(self) -> str:
        """The page's name is the strategy's."""
        return self.page.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self.network.name

    @property
    def processes(self) -> tuple[int, ...]:
        """The numbers of processes over which it must train the same: one case of each kind of strategy."""
        return (2, 4) if f"{self.name}-{self.framework}-{self.model}{self.variant}" in OVER_PROCESSES else ()

    def make_mesh(self, devices: list[jax.Device]) -> Mesh:
        """The mesh of the first devices. Raises ``ValueError`` where they are too few."""
        return make_mesh(devices, self.mesh_axes, self.axis_type)

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh on its devices; on this machine's, where it has none. Then it starts the JAX backend."""
        return self.make_mesh(list(self.devices) or jax.devices())

    def on(self, devices: Sequence[jax.Device]) -> Self:
        """The same form on the first of these devices, which may be those of a topology that is only described."""
        return replace(self, devices=tuple(devices))

    @property
    def truth(self) -> ModelTruth:
        """The float64 judge of this model, loss and optimizer."""
        return self.network.truth(self.optimizer)

    @property
    def logical_axes(self) -> Tree:
        """The parameters' logical axes."""
        return self.network.axes

    def lay_out(self, rules: dict[str, str]) -> Tree:
        """The parameters' specs by these rules from logical to mesh axis. Raises ``ValueError`` on a clash."""
        return Mapping(**rules).specs(self.network.axes)

    def resolve(self, table: Iterable[Rule]) -> Tree:
        """The parameters' specs by an ordered table. Raises ``ValueError`` as `rule_tables.settle`."""
        return settle(table, self.network.axes).specs(self.network.axes)

    @property
    def model_flops(self) -> ModelFlops:
        """The operations of one global batch, by the model's formula."""
        return model_flops(self.network, self.batch_size)

    def batches(self, count: int) -> Iterable[Batch]:
        """``count`` host batches, drawn by the truth."""
        return self.truth.batches(count, self.batch_size)

    @cached_property
    def contract(self) -> Contract:
        """The page's tables and budget, for this model, optimizer, mesh and batch."""
        moments = dict(leaves(self.page.optimizer.specs(self.network.axes)))
        state = {f"{moment}/{path}": spec for moment in MOMENTS[type(self.optimizer)] for path, spec in moments.items()}
        return Contract(
            parameters=dict(leaves(self.page.parameters.specs(self.network.axes))),
            gradients=dict(leaves(self.page.gradients.specs(self.network.axes))),
            optimizer_state=state | ({"count": PartitionSpec()} if isinstance(self.optimizer, Adam) else {}),
            batch=self.batch_specs,
            computed=dict(leaves(self.page.compute.specs(self.network.axes))),
            forward=self.traffic.price(self.page.communication.forward, backward=False),
            step=self.traffic.price(self.page.communication.step, backward=True),
            explicit=self.explicit,
            device_dimension=self.device_dimension,
            spared=self.spared,
            best_on_wire=True,
            **self.network.promises,
        )

    @property
    def traffic(self) -> Traffic:
        """The traffic that turns the page's budget into bytes."""
        reductions = 1 if self.explicit else self.network.promises.get("microbatches", 1)
        return Traffic(self.network, self.page, self.mesh_axes, self.batch_size, reductions, self.explicit)

    @property
    def spared(self) -> int | None:
        """The bytes of activations that a device need not hold, where the model recomputes its blocks."""
        return spared(self.network, self.page.compute, self.mesh_axes, self.batch_size)

    @property
    def batch_specs(self) -> dict[str, PartitionSpec]:
        """The layout of each field of a batch."""
        return {field: self.page.compute.spec(axes) for field, axes in self.network.batch_axes.items()}

    def shard_batch(self, batch: Batch) -> dict[str, jax.Array]:
        """The global batch on its devices. Raises ``ValueError`` where its size does not divide, in whole groups."""
        return {name: jax.device_put(*placed) for name, placed in self.place(batch).items()}

    def abstract_batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        """What `shard_batch` returns of a batch, without its arrays."""
        [batch] = self.batches(1)
        return {
            name: jax.ShapeDtypeStruct(value.shape, canonicalize_dtype(value.dtype), sharding=sharding)
            for name, (value, sharding) in self.place(batch).items()
        }

    def place(self, batch: Batch) -> dict[str, tuple[np.ndarray, NamedSharding]]:
        """Each field of a host batch as the devices take it, and how. Raises as `shard_batch`."""
        self.check_divides(batch)
        return {name: (value, self.on_mesh(self.batch_specs[name])) for name, value in batch.items()}

    def check_divides(self, batch: Batch) -> None:
        """Raises ``ValueError``, naming both numbers, where the examples do not divide among the devices, in groups."""
        for name, axes in self.network.batch_axes.items():
            self.page.compute.check(f"batch field {name!r}", axes, batch[name].shape, self.mesh_axes)
            share = len(batch[name]) // prod(self.mesh_axes[axis] for axis in self.page.compute.of("batch"))
            if share % self.network.group:
                raise ValueError(
                    f"batch field {name!r} of {len(batch[name])} examples gives each device {share}, which is not "
                    f"divisible by group={self.network.group}"
                )

    def abstract_state(self) -> Any:
        """What ``init`` returns, without its arrays. Each form has its own."""
        raise NotImplementedError

    def save(self, state: Any, folder: Path, data: Resumable | None = None) -> None:
        """The state, and the place of a data iterator, as a checkpoint. Raises as `checkpointing.save`."""
        from reference_impl.lifecycle import checkpointing  # only here: importing Orbax takes most of a second

        checkpointing.save(state, folder, data)

    def save_async(self, state: Any, folder: Path, data: Resumable | None = None) -> Saving:
        """The same in the background: ``result()`` waits for it. Raises as `checkpointing.save_async`."""
        from reference_impl.lifecycle import checkpointing

        return checkpointing.save_async(state, folder, data)

    def restore(self, folder: Path, data: Resumable | None = None) -> Any:
        """The state of a checkpoint, placed as ``init`` places it; the iterator goes on from its place there. Raises
        as `checkpointing.restore`."""
        from reference_impl.lifecycle import checkpointing

        return checkpointing.restore(self.abstract_state(), folder, data)

    if not compat.ORBAX_SAVES_TREES:
        save = save_async = restore = None  # type: ignore[assignment]

    def on_mesh(self, specs: Any) -> Any:
        """Specs, or a pytree of them, as ``NamedSharding`` on this mesh."""
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), specs, is_leaf=lambda node: isinstance(node, PartitionSpec)
        )

    def shard(self, shapes: Any, specs: Any) -> Any:
        """A pytree of ``ShapeDtypeStruct`` on this mesh, by a pytree of specs."""
        return jax.tree.map(lambda leaf, sharding: leaf.update(sharding=sharding), shapes, self.on_mesh(specs))

    def compile(self, function: Callable[..., Any], jit: Callable[..., Any] = jax.jit, **options: Any) -> OnMesh:
        """``function`` jitted (lazily: nothing compiles before the first call) and bound to the mesh."""
        return OnMesh(self.mesh, jit(function, **options))
