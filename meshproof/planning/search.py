"""The best layouts of a model on so many devices: every one is reckoned, and those that fit are ranked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from meshproof.planning import pipelining
from meshproof.planning.costs import Memory, Plan, memory_of, peak_of, plan_of
from meshproof.planning.layouts import Layout, divisors, layouts
from meshproof.planning.memory import Precision
from meshproof.planning.models import Model, PlanError
from meshproof.targets import Chip

ROOM = 0.9
"""The share of a chip's memory that a plan may take: the rest is its runtime's, and what formulas do not count."""

MOST_DEVICES = 1 << 20


@dataclass(frozen=True)
class Question:
    """What is to be planned: ``batch`` in tokens (or images) of a whole step, on ``chips`` chips.

    ``mfu`` is the share of its peak that a device reaches on its own.
    """

    model: Model
    chip: Chip
    chips: int
    batch: int
    precision: Precision
    mfu: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.mfu <= 1:
            raise PlanError(
                f"--mfu {self.mfu:g}: expected a share above 0 and up to 1, such as 0.45, as `pytest benchmarks/` "
                f"measures of a step on one device"
            )
        if self.chips < 1 or self.batch < 1:
            raise PlanError(f"--chips {self.chips}, --batch-tokens {self.batch}: expected both above 0")
        if self.model.length and self.batch % self.model.length:
            length = self.model.length
            below, above = self.batch // length * length, (self.batch // length + 1) * length
            raise PlanError(
                f"--batch-tokens {self.batch:,} is no whole number of sequences of {length:,} tokens; the nearest are "
                f"{' and '.join(f'{size:,}' for size in (below, above) if size)}; --sequence gives sequences another "
                f"length, as where a batch has a token more than is trained on"
            )

    @property
    def devices(self) -> int:
        """As JAX counts them: a chip may be several."""
        return self.chips * self.chip.devices

    @property
    def examples(self) -> int:
        """What a batch is split into: sequences, or tokens or images if they have no length."""
        return self.batch // (self.model.length or 1)

    @property
    def peak(self) -> float:
        """Operations per second of a device in this precision."""
        return peak_of(self.chip, self.precision)

    @property
    def reached(self) -> float:
        """Of these, as many as a device reaches."""
        return self.mfu * self.peak

    def plan(self, layout: Layout) -> Plan:
        """One layout, reckoned."""
        return plan_of(self.model, layout, self.batch, self.chip, self.precision, self.mfu)

    @property
    def usable(self) -> float:
        """Bytes of a device that a plan may take."""
        return ROOM * self.chip.memory

    def fits(self, plan: Plan) -> bool:
        """Whether the fullest device holds it."""
        return plan.memory.total <= self.usable


def reckon(question: Question) -> list[Plan]:
    """The best plan of each strategy and mesh, the fastest first; where none of it fits, what holds least.

    Raises `PlanError` if no mesh splits the batch and the model evenly.
    """
    found = [best_of(question, layout) for layout in layouts(question.model, question.devices, question.batch)]
    if not found:
        raise PlanError(no_mesh(question))
    return sorted(found, key=lambda plan: (not question.fits(plan), plan.order))


def best_of(question: Question, layout: Layout) -> Plan:
    """The layout with the microbatches, and with the recomputation, that make it fastest; or hold least."""
    plans = list(candidates(question, layout))
    fitting = [plan for plan in plans if question.fits(plan)]
    return min(fitting, key=lambda plan: plan.order) if fitting else min(plans, key=lambda plan: plan.memory.total)


def candidates(question: Question, layout: Layout) -> Iterator[Plan]:
    """Plans of a layout: from each start, microbatches shrink until they fit.

    Where all start with whole ones, recomputing gains nothing.
    """
    counts = divisors(question.examples // layout.ways)
    wanted = {1} if layout.pipeline == 1 else {layout.pipeline, pipelining.microbatches_for(layout.pipeline)}
    starts = {counts[min(bisect_left(counts, least), len(counts) - 1)] for least in wanted}
    for recomputes in (False, True) if question.model.is_stack else (False,):
        plans = [
            question.plan(smallest(question, replace(layout, recomputes=recomputes), counts, start)) for start in starts
        ]
        yield from plans
        if {plan.layout.microbatches for plan in plans} == starts and all(map(question.fits, plans)):
            return


def smallest(question: Question, layout: Layout, counts: Sequence[int], start: int) -> Layout:
    """The layout with the fewest microbatches of these, from ``start`` on, that fit; if none do, with the most, where
    more of them hold less."""

    def held_by(place: int) -> Memory:
        split = replace(layout, microbatches=counts[place])
        return memory_of(question.model, split, question.batch, question.precision)

    low, high = counts.index(start), len(counts) - 1
    first = held_by(low)
    if first.state > question.usable and first.total > held_by(high).total:
        low = high
    if first.state <= question.usable < first.total:
        while low < high:
            middle = (low + high) // 2
            if held_by(middle).total <= question.usable:
                high = middle
            else:
                low = middle + 1
    return replace(layout, microbatches=counts[low])


def by_strategy(plans: list[Plan]) -> dict[str, Plan]:
    """The best plan of each strategy, in their order."""
    found: dict[str, Plan] = {}
    for plan in plans:
        found.setdefault(plan.layout.name, plan)
    return found


def fewest_chips(question: Question) -> int | None:
    """The fewest chips that would hold it, of powers of two and three times these; ``None`` up to a million."""
    powers = sorted({times << power for times in (1, 3) for power in range(20)})
    for chips in powers:
        if question.chips < chips <= MOST_DEVICES:
            larger = replace(question, chips=chips)
            meshes = layouts(larger.model, larger.devices, larger.batch)
            if any(larger.fits(best_of(larger, layout)) for layout in meshes):
                return chips
    return None


def no_mesh(question: Question) -> str:
    """Why nothing splits evenly: the batch, with those nearest that would be."""
    model, devices = question.model, question.devices
    unit = f"sequences of {model.length:,} tokens" if model.length else f"{model.unit}s"
    examples, step = question.examples, model.length or 1
    near = [count * step for count in (examples // devices * devices, (examples // devices + 1) * devices) if count]
    parts = f", {model.layers} layers and widths of {model.d_model:,} and {model.d_ff:,}" if model.is_stack else ""
    most = examples * (model.layers * gcd(model.d_model, model.d_ff, model.heads) if model.is_stack else 1)
    dividing = (chips for chips in range(question.chips - 1, 0, -1) if most % (chips * question.chip.devices) == 0)
    fewer = next((chips for chips in dividing if has_mesh(replace(question, chips=chips))), 1)
    return (
        f"no mesh of {devices:,} devices splits a batch of {examples:,} {unit}{parts} evenly; batches of "
        f"{' or '.join(f'{size:,}' for size in near)} {model.unit}s would be split, or {fewer:,} chips split this one"
    )


def has_mesh(question: Question) -> bool:
    """Whether any mesh splits the batch and the model evenly."""
    return next(layouts(question.model, question.devices, question.batch), None) is not None
