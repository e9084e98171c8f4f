"""What was seen of a case, as plain data: it can be pickled, kept, and judged where there is no JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from meshproof.contract import Batch, Judgement, Leaves, Step
from meshproof.hlo import Collective, Shape
from meshproof.measures.layout import LeafLayout
from meshproof.measures.memory import ProgramMemory
from meshproof.measures.verdicts import Verdict

STEPS = 3
"""How many train steps a case is observed over: the first from zero momentum, the next with it, one more."""


@dataclass(frozen=True)
class NotSupported:
    """Not seen, because the strategy lacks the member it takes: no verdict."""

    reason: str


def no_lower(member: str) -> NotSupported:
    """What is said of a function that cannot be compiled ahead of time, and so cannot be looked at."""
    return NotSupported(f"{member} has no lower(): hand over the jitted function itself, or give it one")


@dataclass(frozen=True)
class Failed:
    """Not seen, because the strategy raised, or the instrument could not read it: a fault."""

    reason: str


@dataclass(frozen=True)
class NotExercised:
    """Not run at all on this machine: no verdict."""

    reason: str


T = TypeVar("T")
Seen: TypeAlias = T | NotSupported | Failed


@dataclass(frozen=True)
class Program:
    """One compiled function. ``flops`` and bytes are per device and call; compile time is in seconds.

    ``products`` counts the matrix products and convolutions that a call runs; ``None`` where the text does not tell.
    """

    collectives: Seen[tuple[Collective, ...]]
    products: Seen[int | None]
    memory: Seen[ProgramMemory]
    flops: float
    compile_seconds: float
    host_transfers: tuple[str, ...]


@dataclass(frozen=True)
class Layouts:
    """Where a state lies at one moment, and its bytes on the fullest device.

    ``arrays`` are those of the state as JAX sees it, ``parameters`` and ``optimizer_state`` as the strategy shows them.
    ``scalar_bytes`` is the part of ``state_bytes`` in arrays of which a device holds one element: step counters and
    other scalars, with a device dimension or without.
    """

    arrays: tuple[LeafLayout, ...]
    parameters: Seen[tuple[LeafLayout, ...]]
    optimizer_state: Seen[tuple[LeafLayout, ...]]
    state_bytes: int
    scalar_bytes: int


@dataclass(frozen=True)
class BatchLayout:
    """A placed batch; ``displaced`` names the shards that do not hold their own part of the host batch."""

    fields: tuple[LeafLayout, ...]
    displaced: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """``k`` train steps: each step's numbers, and what JAX traced and compiled during each (event names)."""

    steps: tuple[Step, ...]
    compilations: tuple[tuple[str, ...], ...]


def evaluation_set(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """What is evaluated: these batches, of the last one only a third, so that some devices have fewer examples."""
    *whole, last = batches
    return (*whole, {field: value[: len(value) // 3] for field, value in last.items()})


@dataclass(frozen=True, order=True)
class Warned:
    """A warning: the name of its class, its text, and the file and line that it speaks of, from the import path on."""

    category: str
    message: str
    at: str

    def __str__(self) -> str:
        return f"{self.category}: {self.message}"


@dataclass(frozen=True)
class Observation:
    """One case, observed once. Whatever could not be seen says why."""

    case: str
    initial: Seen[Leaves]
    own_truth: Seen[Judgement]
    gradients: Seen[Leaves]
    unchecked_gradients: Seen[Leaves]
    gradient_layout: Seen[tuple[LeafLayout, ...]]
    forward_loss: Seen[float]
    run: Seen[Run]
    evaluation: Seen[dict[str, tuple[float, int]]]
    rerun: Seen[Verdict]
    finite: Seen[Verdict]
    replicas: Seen[Verdict]
    annotated: Seen[tuple[LeafLayout, ...]]
    at_birth: Seen[Layouts]
    held_at_birth: Seen[set[Shape]]
    before: Seen[Layouts]
    after: Seen[Layouts]
    moved: Seen[tuple[str, ...]]
    batch: Seen[BatchLayout]
    forward: Seen[Program]
    step: Seen[Program]
    promotions: Seen[tuple[str, ...]]
    implicit_transfers: Seen[tuple[str, ...]]
    batch_error: Seen[str]
    dimension_errors: Seen[dict[int, str]]
    mesh_error: Seen[str]
    warnings: tuple[Warned, ...]


Outcome: TypeAlias = Observation | Failed | NotExercised
"""What comes of a case."""
