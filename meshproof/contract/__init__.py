"""What a strategy promises, as data: layouts by leaf path and a communication budget.

An implementation needs to import only this module. It starts no JAX backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from jax.sharding import Mesh

from meshproof.contract.promises import (
    COMPUTE_TYPES,
    EIGHT_BITS,
    ELEMENT_TYPES,
    HALVES,
    Communication,
    Contract,
    Operation,
    Part,
    Payload,
    spec_axes,
)
from meshproof.contract.proposal import Proposal

__all__ = [
    "COMPUTE_TYPES",
    "EIGHT_BITS",
    "ELEMENT_TYPES",
    "HALVES",
    "Batch",
    "Communication",
    "Contract",
    "DataIterator",
    "Direction",
    "Evaluation",
    "Leaves",
    "ModelFlops",
    "Operation",
    "Part",
    "Payload",
    "Proposal",
    "ReferenceTrajectory",
    "Slot",
    "Step",
    "Strategy",
    "TrainingRun",
    "Trajectory",
    "Tree",
    "Truth",
    "leaves",
    "nest",
    "spec_axes",
]

Tree = Mapping[str, Any]
"""A canonical tree: nested dicts with string keys and arrays at the leaves."""

Leaves = dict[str, np.ndarray]
"""A canonical tree, flat: path (``dense_0/kernel``) to host array."""

Batch = Mapping[str, Any]
"""One batch by field name; the leading dimension of every field is the global batch B."""

Direction = Literal["forward", "backward", "weights"]


@dataclass(frozen=True)
class Slot:
    """One entry of a pipeline's schedule: in ``tick``, ``stage`` takes ``microbatch`` in ``direction``.

    In a schedule with ``"weights"`` slots, ``"backward"`` computes the gradient of the stage's input only, and
    ``"weights"``, later, those of its weights. ``chunk`` numbers the groups of layers of one stage. A tick is the time
    of one slot; a stage without a slot in a tick is idle.
    """

    tick: int
    stage: int
    microbatch: int
    direction: Direction
    chunk: int = 0


@dataclass(frozen=True)
class Step:
    """One train step: the loss before the update, the canonical leaves after it, and its other scalar metrics.

    ``auxiliary`` has the data of random keys, uint32, in place of typed ones.
    """

    loss: float
    parameters: Leaves
    optimizer_state: Leaves
    metrics: Leaves = field(default_factory=dict)
    auxiliary: Leaves = field(default_factory=dict)


@dataclass(frozen=True)
class Trajectory:
    """``k`` train steps from given values, and the gradients of the first, before the optimizer."""

    gradients: Leaves
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class ReferenceTrajectory:
    """The numbers that a run must compute, in float64, and the standard deviation that float32 rounding gives each.

    ``lengths`` are those of gradients, and of what an optimizer makes of them, along the true ones: by tree and leaf
    the deviation from 1, where it is known.
    """

    value: Trajectory
    rounding: Trajectory
    lengths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """Totals over ``count`` examples: the summed ``loss`` in float64, and its ``deviation`` by float32 rounding.

    ``correct`` examples are classified rightly. For ``doubtful`` ones, rounding may change the predicted class.
    """

    loss: float
    deviation: float
    correct: int
    doubtful: int
    count: int


@dataclass(frozen=True)
class ModelFlops:
    """Floating-point operations that a model needs for one global batch: ``forward``, and in a whole train ``step``.

    ``formula`` names the formula, of shapes only: recomputation and compiler rewrites do not count.
    """

    forward: float
    step: float
    formula: str


class Truth(Protocol):
    """The numbers that one model, loss and optimizer must compute. It uses no JAX.

    A trainer that brings none may bring ``single_device``; see `Strategy`.

    Optional: ``evaluate(parameters, batches)``, the `Evaluation` of a classifier over batches of any sizes. By the name
    ``auxiliary``, where it has a parameter of that, it is handed the tree of the auxiliary state, as of running
    statistics, too.
    """

    def initial_parameters(self) -> Tree:
        """Canonical float32 start values, the same on every version of the stack."""

    def train(self, parameters: Tree, batches: Sequence[Batch]) -> ReferenceTrajectory:
        """Train one step per batch from ``parameters``."""


class Strategy(Protocol):
    """A trainer under test. Only ``init``, ``train_step`` and ``batches`` are needed beside the names.

    Optional members beyond these: ``variant`` (str, a modifier in the case's id: ``adam``), ``mesh_axes``
    (ordered axis name to size, so that the case has a name before JAX has devices), ``make_mesh(devices)``,
    ``load(parameters)`` (a state that holds these canonical values), ``truth`` (a `Truth`), ``evaluate(state, batch)``
    (of a host batch of any number of examples up to the usual: ``{"loss", "correct"}``, each as the pair of its sum
    over the examples and their number), of a strategy in ``shard_map`` ``unchecked_gradients`` (``gradients`` with
    ``check_vma=False``), of a pipeline its ``schedule`` (`Slot` entries in the order of their ticks), and
    ``at_rest(state)``: ``{"parameters": tree, "optimizer_state": tree}`` of the arrays that are really on the devices,
    if those are not the canonical ones, as in a pipeline that stacks its layers: the canonical ones may then be host
    arrays. Also ``auxiliary(state)``: the canonical tree of what a state has beside parameters and optimizer state, as
    running statistics, an average of the parameters, a loss scale, random keys; no array of it is in another part. And
    ``logical_axes`` (the canonical tree of the parameters with a tuple of logical axis names at each leaf) with
    ``lay_out(rules)`` (the same tree with the ``PartitionSpec`` of each leaf, under rules from logical to mesh axis)
    and ``resolve(table)`` (the same under an ordered table of pairs: a logical axis, and a mesh axis or ``None``),
    ``draws`` (whether a step draws random numbers, as dropout does), ``without_draws()`` (the same trainer with all
    rates at 0: a case of its own, whose numbers are held to float64), and ``model_flops`` (`ModelFlops`, for the
    utilisation in benchmarks). And instead of a ``truth``, ``single_device(dtype)``: the same trainer on one device,
    with ``load``, asked for ``"float32"``; a step that JAX cannot trace is asked for ``"float64"``, too.

    For checkpoints: ``save(state, folder)`` writes the whole state into a folder that does not exist yet, a
    ``pathlib.Path``, and returns when it is whole on disk; ``restore(folder)`` returns that state, placed as ``init``
    places it. Optional beside them: ``save_async(state, folder)``, which may return earlier, with an object whose
    ``result()`` waits until the checkpoint is whole and raises where it never will be.

    For training over several processes: ``processes``, their numbers, such as ``(2, 4)``; it is started in as many, and
    ``jax.devices()`` are those of all.

    For targets that only compile: ``on(devices)`` (the same trainer on these), ``abstract_state()`` and
    ``abstract_batch()`` (what ``init`` and ``shard_batch`` return, of ``jax.ShapeDtypeStruct`` with shardings).
    """

    name: str
    framework: str
    model: str
    contract: Contract

    @property
    def mesh(self) -> Mesh:
        """The device mesh."""

    def init(self, key: Any) -> Any:
        """A state that is sharded as it is made. If it is jitted, or has ``lower``, its program is read too (MEM-3)."""

    def batches(self, count: int) -> Iterable[Batch]:
        """``count`` host batches, the same in every call."""

    def shard_batch(self, batch: Batch) -> Any:
        """The batch on its devices: a dict of the same fields."""

    def train_step(self, state: Any, batch: Any) -> tuple[Any, Mapping[str, Any]]:
        """One jitted step that donates ``state``; the metrics hold at least ``loss``."""

    def loss(self, state: Any, batch: Any) -> Any:
        """The jitted forward pass: the scalar mean loss of the global batch."""

    def gradients(self, state: Any, batch: Any) -> Tree:
        """The global batch's gradients as a canonical tree, before the optimizer."""

    def parameters(self, state: Any) -> Tree:
        """The parameters as a canonical tree of global arrays, in model order: failures name the first leaf in it."""

    def optimizer_state(self, state: Any) -> Tree:
        """The optimizer state as a canonical tree of global arrays."""


class DataIterator(Protocol):
    """What ``data_iterator(process, processes)`` of an implementation's module returns: fresh, at its first batch.

    Each process has its own. It may end after an epoch, or after several, or never. ``examples`` is how many the data
    set has; each must be read once, by one process, before any is read again.
    """

    examples: int

    def __next__(self) -> Batch:
        """The rows of this process, as host arrays."""

    def get_state(self) -> Any:
        """Where it continues: anything that can be pickled. A copy, if a save in the background is to write it."""

    def set_state(self, state: Any) -> None:
        """Continue there. On another number of processes it gets the state of one of those that saved, or raises."""

    def ids(self, batch: Batch) -> Iterable[Any]:
        """Optional: the names of the examples in a batch. Without it an example is a row, known by its bytes."""


class TrainingRun(Protocol):
    """What ``training_run(folder)`` of an implementation's module returns: its own loop, a step at a time.

    It begins anew where there is no whole checkpoint in the folder, a ``pathlib.Path``, and else goes on from the last.
    """

    step: int
    """The train steps that were taken since the run began."""

    def __next__(self) -> tuple[Batch, float]:
        """Take one step. Returns the host batch that it trained on, and its loss."""

    def save(self) -> None:
        """Write all that the run needs to go on after the step that was taken last; on disk when this returns."""


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a canonical tree with their paths, in insertion order. Raises ``TypeError`` on a list of arrays."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, list | tuple):
            if any(hasattr(entry, "shape") for entry in value):
                kind = type(value).__name__
                raise TypeError(f"{path} is a {kind} of arrays: a canonical tree has only dicts above them")
            yield path, value
        elif isinstance(value, Mapping):
            yield from leaves(value, f"{path}/")
        else:
            yield path, value


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical tree of these leaves by path: the inverse of `leaves`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree
