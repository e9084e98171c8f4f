"""What a strategy promises, as data: layouts by leaf path and a communication budget.

An implementation needs to import only this module. It starts no JAX backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, get_args

import numpy as np
from jax.sharding import Mesh, PartitionSpec

Tree = Mapping[str, Any]
"""A canonical tree: nested dicts with string keys and arrays at the leaves."""

Leaves = dict[str, np.ndarray]
"""A canonical tree, flat: path (``dense_0/kernel``) to host array."""

Batch = Mapping[str, Any]
"""One batch by field name; the leading dimension of every field is the global batch B."""

Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
Payload = Literal["parameters", "gradients", "activations", "metrics"]
Part = Literal["parameters", "gradients", "optimizer_state", "batch", "computed"]
Direction = Literal["forward", "backward", "weights"]

COMPUTE_DTYPES = ("float32", "bfloat16")
"""What a strategy may declare to compute in."""


@dataclass(frozen=True)
class Communication:
    """One line of a communication budget: logical traffic per device and train step.

    ``axes`` may be in any order. ``bytes`` is the S of the ring formulas: the operand's for all-reduce, reduce-scatter,
    all-to-all and collective-permute, the result's for all-gather. ``payload`` is what moves; "metrics" are scalars.
    """

    operation: Operation
    axes: tuple[str, ...]
    payload: Payload
    bytes: int

    def __str__(self) -> str:
        return f"{self.operation} of {self.payload} over {'×'.join(self.axes)}: {self.bytes:,} bytes"


@dataclass(frozen=True)
class Contract:
    """The promises of one strategy on one mesh. ``None`` promises nothing: those clauses are *not supported*.

    ``parameters``, ``gradients``, ``optimizer_state`` and ``batch`` map a glob pattern of leaf paths (``*/kernel``)
    to the ``PartitionSpec`` at rest; the first pattern that matches wins. ``computed`` maps parameter patterns to the
    ``PartitionSpec`` in use: an expert stays sharded over its axis, while FSDP gathers. Paths are those of
    `Strategy.at_rest` if the strategy has it, else of the canonical trees. ``forward`` and ``step`` list everything
    that may move in ``loss`` and in ``train_step``: what they do not list must not happen. ``explicit``: collectives
    are written by hand, so the compiler must keep each as it is written. ``device_dimension``: every field of a placed
    batch has a leading dimension of devices before that of its examples, as ``pmap`` takes it.

    ``microbatches`` is the number of parts of a batch whose gradients a step accumulates. ``mask`` is the field that
    says which examples count; the others are padding. ``routed``: what an example holds decides which expert gets it,
    on the mesh as on one device, so that batches may be made that all go to one. ``compute_dtype`` is that of products
    and activations, while parameters, optimizer state, gradients and loss are float32. Where a parameter or a gradient
    is cast is left open, so it may move in either dtype, as ``step`` lists it. ``rematerialises``: the backward pass
    recomputes activations that the forward pass did not keep. ``spared`` is the least number of bytes of temporary
    memory per device that this saves.
    """

    parameters: Mapping[str, PartitionSpec] | None = None
    gradients: Mapping[str, PartitionSpec] | None = None
    optimizer_state: Mapping[str, PartitionSpec] | None = None
    batch: Mapping[str, PartitionSpec] | None = None
    computed: Mapping[str, PartitionSpec] | None = None
    forward: tuple[Communication, ...] | None = None
    step: tuple[Communication, ...] | None = None
    explicit: bool = False
    device_dimension: bool = False
    microbatches: int = 1
    mask: str | None = None
    routed: bool = False
    compute_dtype: str = "float32"
    rematerialises: bool = False
    spared: int | None = None

    def __post_init__(self) -> None:
        """Raises ``TypeError`` for no layout or budget line, ``ValueError`` for an unknown word of any kind."""
        if self.compute_dtype not in COMPUTE_DTYPES:
            raise ValueError(f"Contract.compute_dtype is {self.compute_dtype!r}; expected one of {COMPUTE_DTYPES}")
        for part in get_args(Part):
            declared = getattr(self, part)
            if declared is not None and not isinstance(declared, Mapping):
                raise TypeError(f"Contract.{part} is {declared!r}; expected a dict from path patterns to PartitionSpec")
            for pattern, spec in (declared or {}).items():
                if not isinstance(spec, PartitionSpec):
                    raise TypeError(f"Contract.{part}[{pattern!r}] is {spec!r}; expected a PartitionSpec")
        for what in ("forward", "step"):
            for line in getattr(self, what) or ():
                if not isinstance(line, Communication):
                    raise TypeError(f"Contract.{what} holds {line!r}; expected entries of Communication")
                for word, known in ((line.operation, get_args(Operation)), (line.payload, get_args(Payload))):
                    if word not in known:
                        raise ValueError(f"Contract.{what} lists {word!r} in {line!r}; expected one of {known}")

    def spec(self, part: Part, path: str) -> PartitionSpec:
        """The declared ``PartitionSpec`` of one leaf. Raises ``LookupError`` if no pattern matches ``path``."""
        patterns: Mapping[str, PartitionSpec] = getattr(self, part) or {}
        for pattern, spec in patterns.items():
            if fnmatchcase(path, pattern):
                return spec
        raise LookupError(
            f"the contract declares no PartitionSpec for {part} leaf {path!r}: its patterns are {sorted(patterns)}; "
            f"add one that matches, PartitionSpec() for a replicated leaf"
        )

    def unmatched(self, part: Part, paths: Iterable[str]) -> list[str]:
        """The patterns of a part that are not the first match of any leaf, sorted."""
        patterns: Mapping[str, PartitionSpec] = getattr(self, part) or {}
        matches = [[pattern for pattern in patterns if fnmatchcase(path, pattern)] for path in paths]
        return sorted(set(patterns) - {found[0] for found in matches if found})

    def axes(self) -> Iterator[str]:
        """Every mesh axis that the contract names, with repetitions."""
        for part in get_args(Part):
            for spec in (getattr(self, part) or {}).values():
                yield from spec_axes(spec)
        for line in (*(self.forward or ()), *(self.step or ())):
            yield from line.axes

    def moves(self, payload: str, operation: Operation | None = None) -> bool:
        """Whether the step's budget has a line for this payload (and operation)."""
        return any(line.payload == payload and operation in (None, line.operation) for line in self.step or ())


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
    """One train step: the loss before the update, the canonical leaves after it, and its other scalar metrics."""

    loss: float
    parameters: Leaves
    optimizer_state: Leaves
    metrics: Leaves = field(default_factory=dict)


@dataclass(frozen=True)
class Trajectory:
    """``k`` train steps from given values, and the gradients of the first, before the optimizer."""

    gradients: Leaves
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class ReferenceTrajectory:
    """The numbers that a run must compute, in float64, and the standard deviation that float32 rounding gives each."""

    value: Trajectory
    rounding: Trajectory


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

    Optional: ``evaluate(parameters, batches)``, the `Evaluation` of a classifier over batches of any sizes.
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
    arrays. And ``logical_axes`` (the canonical tree of the parameters with a tuple of logical axis names at each leaf)
    with ``lay_out(rules)`` (the same tree with the ``PartitionSpec`` of each leaf, under rules from logical to mesh
    axis), ``draws`` (whether a step draws random numbers, as dropout does), ``without_draws()`` (the same trainer with
    all rates at 0: a case of its own, whose numbers are held to float64), and ``model_flops`` (`ModelFlops`, for the
    utilisation in benchmarks). And instead of a ``truth``, ``single_device(dtype)``: the same trainer on one device,
    with ``load``, whose arrays and arithmetic are all ``"float32"`` or ``"float64"``, as asked.
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


def spec_axes(spec: Iterable[str | tuple[str, ...] | None]) -> tuple[str, ...]:
    """The mesh axes of a ``PartitionSpec`` in its order: each entry is ``None``, one axis, or several, major first."""
    return tuple(axis for entry in spec if entry for axis in ((entry,) if isinstance(entry, str) else entry))


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a canonical tree with their paths, in insertion order. Raises ``TypeError`` on a list of arrays."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}/")
        elif isinstance(value, list | tuple) and any(hasattr(entry, "shape") for entry in value):
            raise TypeError(f"{path} is a {type(value).__name__} of arrays: a canonical tree has only dicts above them")
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
