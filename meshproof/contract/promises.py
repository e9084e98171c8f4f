"""What a contract says: layouts, budgets, and the words that they may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, get_args

from jax.sharding import PartitionSpec

Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
Payload = Literal["parameters", "gradients", "activations", "examples", "metrics", "statistics"]
Part = Literal["parameters", "gradients", "optimizer_state", "auxiliary", "batch", "batch_in_step", "computed"]

COMPUTE_TYPES = {"float32": "f32", "tensorfloat32": "tf32", "bfloat16": "bf16", "float16": "f16"}
"""What a strategy may declare to compute in, and what a program calls it. ``tensorfloat32`` is a precision of float32's
products, and no dtype."""

HALVES = ("bfloat16", "float16")
"""Those of 16 bits, half as wide as float32."""

ELEMENT_TYPES = {
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "int32": "s32",
    "int8": "s8",
}
"""What a contract may say that is kept, or moves: JAX's name of a dtype, and that in a compiled program."""

EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2")
"""What values may be rounded to before they are multiplied."""


@dataclass(frozen=True)
class Communication:
    """One line of a communication budget: logical traffic per device and train step.

    ``axes`` may be in any order; groups of an axis's devices are a part of it, spelled as a census does: ``data:(2)4``
    for two groups of four devices of eight. ``bytes`` is the S of the ring formulas: the operand's for all-reduce,
    reduce-scatter, all-to-all and collective-permute, the result's for all-gather. ``payload`` is what moves:
    "examples" are parts of a batch that a loss mixes with those of other devices, as mixup does, or its ids, labels and
    masks that are brought to them; they have no gradient.
    "metrics" are scalars, "statistics" those of a batch that `Strategy.auxiliary` averages, and in the backward pass
    their gradients, what is gathered for it or of it, or what an optimizer keeps beside moments, as preconditioners.
    ``dtype`` is that in which it moves, and ``bytes`` are counted in; where it is left out, either is open.
    """

    operation: Operation
    axes: tuple[str, ...]
    payload: Payload
    bytes: int
    dtype: str | None = None

    @property
    def wide_bytes(self) -> int:
        """``bytes``, where a float of 16 bits counts as one of 32."""
        return self.bytes * (2 if self.dtype in HALVES else 1)

    def __str__(self) -> str:
        within = f" in {self.dtype}" if self.dtype else ""
        return f"{self.operation} of {self.payload}{within} over {'×'.join(self.axes)}: {self.bytes:,} bytes"


@dataclass(frozen=True)
class Contract:
    """The promises of one strategy on one mesh. ``None`` promises nothing: those clauses are *not supported*.

    ``parameters``, ``gradients``, ``optimizer_state``, ``auxiliary`` and ``batch`` map a glob pattern of leaf paths
    (``*/kernel``) to the ``PartitionSpec`` at rest; the first pattern that matches wins. ``batch_in_step`` maps fields
    of a batch that ``train_step`` takes whole, and splits by a sharding constraint, to the ``PartitionSpec`` of that.
    ``computed`` maps parameter patterns to the ``PartitionSpec`` in use: an expert stays sharded over its axis, while
    FSDP gathers. Paths are those of `Strategy.at_rest` if the strategy has it, else of the canonical trees. ``forward``
    and ``step`` list everything that may move in ``loss`` and in ``train_step``: what they do not list must not happen.
    ``explicit``: collectives are written by hand, so the compiler must keep each as it is written.
    ``device_dimension``: every field of a placed batch has a leading dimension of devices before that of its examples,
    as ``pmap`` takes it.

    ``microbatches`` is the number of parts of a batch whose gradients a step accumulates. ``evaluations`` is how often
    it computes gradients of all its parameters and reduces them: twice for sharpness-aware minimisation, as often as it
    updates where one call does so several times. ``mask`` is the field that says which examples count; the others are
    padding. ``routed``: what an example holds decides which expert gets it, on the mesh as on one device, so that
    batches may be made that all go to one.

    ``compute_dtype`` is that of products and activations, while parameters, optimizer state, auxiliary state, gradients
    and loss are float32, but where ``dtypes`` says otherwise: it maps patterns of ``PART/PATH`` (``parameters/*``) to
    what leaves are kept in. Of ``tensorfloat32`` activations are float32, and products may drop the last 13 bits of
    what they multiply, on devices that do. ``quantised`` are the types of 8 bits (`EIGHT_BITS`) that a step of a
    strategy in 16 bits rounds values to before it multiplies them. A parameter that is kept in less, and that training
    changes, is the rounding of a float32 master in the optimizer or auxiliary state. ``memory`` maps such patterns to
    JAX's memory kinds (``pinned_host``), for leaves that are not kept in the device's own. ``best_on_wire``: compilers
    of every target send no more bytes for the step's collectives than they must (COM-13). ``overlap`` is the least
    share of these bytes with a product behind them, by the schedule of any target that only compiles (COM-12).

    Where a parameter or a gradient is cast is left open, so it may move in either dtype, as ``step`` lists it.
    ``rematerialises``: the backward pass recomputes activations that the forward pass did not keep. ``spared`` is the
    least number of bytes of temporary memory per device that this saves.
    """

    parameters: Mapping[str, PartitionSpec] | None = None
    gradients: Mapping[str, PartitionSpec] | None = None
    optimizer_state: Mapping[str, PartitionSpec] | None = None
    batch: Mapping[str, PartitionSpec] | None = None
    batch_in_step: Mapping[str, PartitionSpec] | None = None
    computed: Mapping[str, PartitionSpec] | None = None
    forward: tuple[Communication, ...] | None = None
    step: tuple[Communication, ...] | None = None
    explicit: bool = False
    device_dimension: bool = False
    microbatches: int = 1
    evaluations: int = 1
    mask: str | None = None
    routed: bool = False
    compute_dtype: str = "float32"
    quantised: tuple[str, ...] = ()
    rematerialises: bool = False
    spared: int | None = None
    auxiliary: Mapping[str, PartitionSpec] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    best_on_wire: bool = False
    overlap: float | None = None

    def __post_init__(self) -> None:
        """Raises ``TypeError`` for no layout, budget line or tuple, ``ValueError`` for an unknown word of any kind."""
        if self.compute_dtype not in COMPUTE_TYPES:
            raise ValueError(f"Contract.compute_dtype is {self.compute_dtype!r}; expected one of {(*COMPUTE_TYPES,)}")
        if isinstance(self.quantised, str):
            raise TypeError(f"Contract.quantised is {self.quantised!r}; expected a tuple of such names")
        if unknown := [each for each in self.quantised if each not in EIGHT_BITS]:
            raise ValueError(f"Contract.quantised has {unknown[0]!r}; expected {EIGHT_BITS}, or some of these")
        if self.quantised and self.compute_dtype not in HALVES:
            raise ValueError(
                f"Contract.quantised beside compute_dtype {self.compute_dtype!r}; expected one of {HALVES} there: a "
                f"value near the middle of two of 8 bits is rounded to either, which the bound of 16 bits allows"
            )
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise ValueError(f"Contract.overlap is {self.overlap!r}; expected a share from 0 to 1")
        if self.evaluations < 1:
            raise ValueError(f"Contract.evaluations is {self.evaluations!r}; expected a whole number of 1 or more")
        for pattern, dtype in self.dtypes.items():
            if dtype not in ELEMENT_TYPES:
                raise ValueError(f"Contract.dtypes[{pattern!r}] is {dtype!r}; expected one of {(*ELEMENT_TYPES,)}")
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
                if line.dtype is not None and line.dtype not in ELEMENT_TYPES:
                    raise ValueError(f"Contract.{what} lists {line.dtype!r} in {line!r}; expected {(*ELEMENT_TYPES,)}")

    def spec(self, part: Part, path: str) -> PartitionSpec:
        """The declared ``PartitionSpec`` of one leaf. Raises ``LookupError`` if no pattern matches ``path``."""
        patterns: Mapping[str, PartitionSpec] = getattr(self, part) or {}
        for pattern, spec in patterns.items():
            if fnmatchcase(path, pattern):
                return spec
        raise LookupError(
            f"the contract declares no PartitionSpec for {part} leaf {path!r}: its patterns are {sorted(patterns)}; "
            f"expected one that matches: add it, PartitionSpec() for a replicated leaf"
        )

    def unmatched(self, part: Part | Literal["dtypes", "memory"], paths: Iterable[str]) -> list[str]:
        """The patterns of a part that are not the first match of any leaf, sorted. Those of ``dtypes`` name it."""
        patterns: Mapping[str, PartitionSpec] = getattr(self, part) or {}
        matches = [[pattern for pattern in patterns if fnmatchcase(path, pattern)] for path in paths]
        return sorted(set(patterns) - {found[0] for found in matches if found})

    def dtype(self, part: Part, path: str) -> str:
        """That in which a leaf is kept, where it holds floating-point numbers."""
        return next((of for pattern, of in self.dtypes.items() if fnmatchcase(f"{part}/{path}", pattern)), "float32")

    def memory_kind(self, part: Part, path: str) -> str | None:
        """The kind of memory that a leaf is kept in; ``None`` is the device's own."""
        return next((kind for pattern, kind in self.memory.items() if fnmatchcase(f"{part}/{path}", pattern)), None)

    def axes(self) -> Iterator[str]:
        """Every mesh axis that its layouts name, with repetitions."""
        for part in get_args(Part):
            for spec in (getattr(self, part) or {}).values():
                yield from spec_axes(spec)

    def axes_of_lines(self) -> Iterator[str]:
        """Every mesh axis that its budgets name, or part of one, with repetitions."""
        for line in (*(self.forward or ()), *(self.step or ())):
            yield from line.axes

    def moves(self, payload: str, operation: Operation | None = None) -> bool:
        """Whether the step's budget has a line for this payload (and operation)."""
        return any(line.payload == payload and operation in (None, line.operation) for line in self.step or ())


def spec_axes(spec: Iterable[str | tuple[str, ...] | None]) -> tuple[str, ...]:
    """The mesh axes of a ``PartitionSpec`` in its order: each entry is ``None``, one axis, or several, major first."""
    return tuple(axis for entry in spec if entry for axis in ((entry,) if isinstance(entry, str) else entry))
