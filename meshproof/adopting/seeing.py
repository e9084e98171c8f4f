"""Observes a trainer once, by the adapter that will be written: its layouts, its two programs, three steps twice."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from runpy import run_path
from typing import Any

import jax
import numpy as np

from meshproof.adopting.adapter import Adapter, AdoptError, spec_of, trimmed
from meshproof.adopting.placement import placing
from meshproof.adopting.traced import draws_bits, looked_up
from meshproof.adopting.training import frozen_in
from meshproof.adopting.trees import arrays
from meshproof.cases import Case
from meshproof.contract import Leaves, leaves, spec_axes
from meshproof.hlo import Collective, HloError, census_by_shape
from meshproof.hlo.constraints import Constraint, constraints_of
from meshproof.hlo.floats import Float, floats, multiplied
from meshproof.hlo.host_transfers import host_transfers
from meshproof.hlo.products import flops_of_products, products
from meshproof.measures.layout import LeafLayout, mesh_axes
from meshproof.measures.memory import is_single, program_memory
from meshproof.observing import layouts as observed
from meshproof.observing.gradients import observe_gradients
from meshproof.observing.initialisation import observe_initialisation
from meshproof.observing.members import origin
from meshproof.observing.programs import stage
from meshproof.observing.seen import Failed, Seen, Unseen
from meshproof.observing.single_device_truth import DRAWING
from meshproof.observing.start import observe_start
from meshproof.observing.subject import CHANGED, Subject
from meshproof.observing.training import Training, observe_training

HEAD = "from jax.sharding import PartitionSpec as P\nfrom meshproof.contract import Contract\nCONTRACT = Contract()\n"


@dataclass(frozen=True)
class Leaf:
    """One array: its global shape, bytes per element, the mesh axes of each dimension that is split, and its dtype.

    ``odd`` says what no ``PartitionSpec`` does: another memory, or an order of devices of its own.
    """

    shape: tuple[int, ...]
    itemsize: int
    spec: tuple[Any, ...]
    odd: str = ""
    dtype: str = "float32"

    @property
    def axes(self) -> set[str]:
        """The axes that split it."""
        return set(spec_axes(self.spec))

    def without(self, axes: set[str]) -> Leaf:
        """The same, not split over these axes."""
        kept = [tuple(axis for axis in spec_axes((entry,)) if axis not in axes) for entry in self.spec]
        return replace(self, spec=trimmed(tuple(each[0] if len(each) == 1 else each or None for each in kept)))


@dataclass(frozen=True)
class Layouts:
    """The layouts that are promised, by part and leaf. ``placed`` is where a batch lies, ``batch`` how it is used."""

    parameters: dict[str, Leaf] | None
    gradients: dict[str, Leaf] | None
    optimizer_state: dict[str, Leaf] | None
    batch: dict[str, Leaf] | None
    placed: dict[str, Leaf] | None = None


@dataclass(frozen=True)
class Read:
    """One compiled program.

    ``runs`` counts the products that a call runs, but for an optimizer's, and ``flops`` their operations; ``products``
    are the types that those of its source multiply. ``constraints`` are the types of tensors that it splits by hand.
    """

    moved: tuple[tuple[Collective, tuple[int, ...]], ...]
    floats: tuple[Float, ...]
    host_transfers: tuple[str, ...]
    aliased: int | None
    runs: int | None = None
    flops: int | None = None
    products: tuple[str, ...] = ()
    rematerialises: bool = False
    draws: bool = False
    unread: str = ""
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class Sight:
    """Everything that was seen of a trainer. A part is ``None`` where it was not seen. ``tables`` are parameters that a
    step looks up."""

    adapter: Adapter
    parameters: dict[str, Leaf] | None
    optimizer_state: dict[str, Leaf] | None
    auxiliary: dict[str, Leaf] | None
    gradients: dict[str, Leaf] | None
    batch: dict[str, Leaf] | None
    start: Leaves
    host_batch: Leaves
    forward: Read | None
    step: Read
    training: Training
    state_bytes: int
    single_bytes: int
    held_whole: tuple[str, ...]
    displaced: tuple[str, ...]
    promotions: tuple[str, ...]
    device_dimension: bool
    tables: frozenset[str]

    @property
    def mesh(self) -> dict[str, int]:
        """The mesh's axes and sizes."""
        return self.adapter.mesh

    @cached_property
    def frozen(self) -> frozenset[str]:
        """The parameters that three steps do not train."""
        steps = self.training.steps
        return frozen_in(self.start, steps) if isinstance(steps, tuple) and steps else frozenset()


def see(adapter: Adapter) -> Sight:
    """Observe it. Raises `AdoptError` where it cannot be observed, or where two runs differ."""
    with warnings.catch_warnings(), jax.default_matmul_precision("float32"):
        warnings.simplefilter("ignore")
        strategy = build(adapter)
        adapter = _with_placement(adapter, strategy)
        strategy = build(adapter)
        subject = _subject(adapter, strategy)
        initialisation, initial = observe_initialisation(subject)
        state = subject.fresh() if subject.canonical_start else initial
        start = observe_start(subject, state)
        step = _read(subject, "train_step", state)
        if step is None:
            raise AdoptError(
                "train_step has no lower(): the step is hidden in Python control flow or behind a function, so that "
                "no program can be read. "
                "Hand over the jitted function itself, or give the object one: lower(state, batch). Seen so far: "
                f"{len(arrays(state))} arrays of state, on the mesh {adapter.mesh}"
            )
        forward = _read(subject, "loss", state)
        tables = looked_up(subject, state)
        gradients = observe_gradients(subject, state)
        training = observe_training(subject, state, initialisation.types)
    _refuse(training, gradients.values)
    if step.draws and "draws" not in adapter.members:
        adapter = replace(adapter, members={"draws": "    draws = True"} | adapter.members)
    layouts, placed = start.layouts, start.batch.fields
    host = {path: np.asarray(value) for path, value in leaves(subject.host_batches[0])}
    return Sight(
        adapter=adapter,
        parameters=_leaves(layouts.parameters, adapter.mesh),
        optimizer_state=_leaves(layouts.optimizer_state, adapter.mesh),
        auxiliary=_leaves(layouts.auxiliary, adapter.mesh),
        gradients=_leaves(gradients.layout, adapter.mesh),
        batch=_leaves(placed, adapter.mesh),
        start=start.parameters if isinstance(start.parameters, dict) else {},
        host_batch=host,
        forward=forward,
        step=step,
        training=training,
        state_bytes=_bytes(layouts),
        single_bytes=sum(leaf.shards[0].bytes for leaf in _told(layouts.arrays) if is_single(leaf)),
        displaced=_told(start.batch.displaced),
        promotions=_told(gradients.promotions),
        held_whole=_held_whole(initialisation.held, layouts.parameters),
        tables=tables,
        device_dimension=any(_of_one_device(field, host) for field in _told(placed)),
    )


def _subject(adapter: Adapter, strategy: Any) -> Subject:
    """Raises `AdoptError` where its batches cannot be used."""
    try:
        return Subject(Case("adopted", strategy, adapter.mesh, "cpu"))
    except (TypeError, ValueError) as error:
        raise AdoptError(str(error)) from error


def build(adapter: Adapter) -> Any:
    """The strategy of the adapter's source, with a contract that promises nothing. Raises `AdoptError`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "adopted.py")
        path.write_text(f"{adapter.header()}\n{HEAD}\n{adapter.source()}", encoding="utf-8")
        [strategy] = run_path(str(path))["strategies"]()
    return strategy


def _with_placement(adapter: Adapter, strategy: Any) -> Adapter:
    """The adapter with a ``shard_batch``, where it has none and the compiled step splits the batch that it is given."""
    if "shard_batch" in adapter.members or not hasattr(strategy.train_step, "lower"):
        return adapter
    subject = _subject(adapter, strategy)
    lowered = strategy.train_step.lower(subject.fresh(), subject.batches[0])
    compiled = stage(stage(lowered, "lowered").compile(), "compiled")
    try:
        placed = dict(leaves(compiled.input_shardings[0][1]))
        specs = {path: sharding.spec for path, sharding in placed.items()}
    except (AttributeError, IndexError, TypeError):
        return adapter
    if not any(axis for spec in specs.values() for axis in spec_axes(spec)):
        return adapter
    imports = set(adapter.imports)
    return replace(
        adapter, members=adapter.members | {"shard_batch": placing(specs, imports)}, imports=frozenset(imports)
    )


def _read(subject: Subject, member: str, state: Any) -> Read | None:
    if not subject.has(member) or not hasattr(getattr(subject.strategy, member), "lower"):
        return None
    try:
        lowered = stage(getattr(subject.strategy, member).lower(state, subject.batches[0]), "lowered")
        compiled = stage(lowered.compile(), "compiled")
    except Exception as error:
        raise AdoptError(f"{member} cannot be compiled: {type(error).__name__}: {error} ({origin(error)})") from error
    text, memory = compiled.as_text(), program_memory(compiled)
    source = lowered.as_text() if hasattr(lowered, "as_text") else ""
    draws = bool(DRAWING.search(source)) and draws_bits(subject, member, state)
    aliased = None if memory is None else memory.aliased
    try:
        moved = census_by_shape(text, subject.case.mesh)
        written = lowered.as_text("hlo", debug_info=True) if hasattr(lowered, "as_text") else ""
        recomputes = "rematted_computation" in text
        narrow, found = (floats(written), multiplied(written)) if written else ((), ())
        kinds = tuple(each.kind for each in found if each.phase != "other") or tuple(each.kind for each in found)
        runs = products(text, differentiated=True)
        flops = flops_of_products(text, differentiated=bool(runs))
        transfers = host_transfers(text)
        runs, split = runs or products(text), constraints_of(source)
        return Read(moved, narrow, transfers, aliased, runs, flops, kinds, recomputes, draws, constraints=split)
    except HloError as error:
        return Read((), (), (), aliased, draws=draws, unread=str(error).splitlines()[0])


def _refuse(training: Training, gradients: Seen[Any]) -> None:
    """Raises `AdoptError` where no step can be run, or where a second run leaves other bits."""
    if isinstance(training.steps, Failed):
        raise AdoptError(training.steps.reason)
    if isinstance(training.rerun, Failed):
        raise AdoptError(f"a second run of the same steps failed: {training.rerun.reason}")
    if not isinstance(training.rerun, Unseen) and not training.rerun.passed:
        for each in (*_told(training.losses), gradients):
            if isinstance(each, Failed) and CHANGED in each.reason:
                raise AdoptError(each.reason)
        raise AdoptError(
            f"two runs of the same three steps differ: {training.rerun}. Expected the same bits; what is not "
            f"deterministic cannot be promised. Take keys from the state or from init's key, and draw no other numbers"
        )


def _leaves(seen: Any, mesh: Mapping[str, int]) -> dict[str, Leaf] | None:
    return {leaf.path: _leaf(leaf, mesh) for leaf in seen} if isinstance(seen, tuple) and seen else None


def _leaf(leaf: LeafLayout, mesh: Mapping[str, int]) -> Leaf:
    found = mesh_axes(leaf, mesh)
    odd = " ".join(word for word in ("memory", "devices") if f" {word}" in leaf.spec)
    return Leaf(leaf.shape, leaf.itemsize, spec_of(found or ()), leaf.spec if odd or found is None else "", leaf.dtype)


def _told(seen: Any) -> tuple[Any, ...]:
    return seen if isinstance(seen, tuple) else ()


def _of_one_device(field: LeafLayout, host: Leaves) -> bool:
    """Whether a placed field has one more dimension than on the host, of which each device holds one."""
    longer = field.path in host and len(field.shape) > np.ndim(host[field.path])
    return longer and all(shard.shape[0] == 1 for shard in field.shards)


def _bytes(layouts: observed.Layouts) -> int:
    return layouts.state_bytes if isinstance(layouts.state_bytes, int) else 0


def _held_whole(held: Any, parameters: Any) -> tuple[str, ...]:
    """The sharded parameters of which a device holds all while ``init`` runs."""
    if not isinstance(held, Iterable) or not isinstance(parameters, tuple):
        return ()
    sizes = {prod(shard.shape) for leaf in parameters for shard in leaf.shards}
    shapes = {shape.dimensions for shape in held if shape.elements not in sizes}
    return tuple(leaf.path for leaf in parameters if leaf.shape in shapes)
