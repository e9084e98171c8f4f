"""Which other case a case is compared with, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from meshproof.cases import Case
from meshproof.contract import Step
from meshproof.measures.numerics import VACUOUS, Verdict, agree
from meshproof.observing.brought_truth import digest
from meshproof.observing.observation import STEPS


def unaccumulated(case: Case, cases: Sequence[Case]) -> Case | None:
    """The same trainer, taking its batches whole, or else one that promises as much in another form."""
    return without(case, cases, microbatches=1)


def unrematerialised(case: Case, cases: Sequence[Case]) -> Case | None:
    """The same trainer, keeping all activations, or else one that promises as much in another form."""
    return without(case, cases, rematerialises=False, spared=None)


def without(case: Case, cases: Sequence[Case], **promises: Any) -> Case | None:
    """One that promises these things and otherwise the same, but for its traffic; the same strategy if there is."""
    whole = replace(case.contract, step=None, explicit=False, **promises)
    alike = [
        other
        for other in cases
        if replace(other.contract, step=None, explicit=False) == whole and share_truth(case, other)
    ]
    return min(alike, key=lambda other: other.strategy.name != case.strategy.name, default=None)


def share_truth(case: Case, other: Case) -> bool:
    """Whether two cases must compute the same numbers, on the same mesh: by their truths.

    Or, where a truth may have been bent to fit one of them, because they are one strategy of one model, and start from
    the same values on the same examples.
    """
    names, (one, two) = ("framework", "model"), (case.strategy, other.strategy)
    if any(getattr(one, name) != getattr(two, name) for name in names):
        return False
    if (case.mesh, case.target) != (other.mesh, other.target):
        return False
    truths = [getattr(strategy, "truth", None) for strategy in (one, two)]
    return truths[0] == truths[1] or (one.name == two.name and None not in truths and start(case) == start(other))


def start(case: Case) -> str:
    """A name for the values and the examples that a case trains from."""
    strategy: Any = case.strategy
    return digest([strategy.truth.initial_parameters(), *strategy.batches(STEPS)])


def agree_steps(
    left: Sequence[Step],
    right: Sequence[Step],
    rounding: Sequence[Step],
    names: tuple[str, str],
    vacuous: float = VACUOUS,
) -> Iterator[Verdict]:
    """Whether two runs agree on everything that each step left."""
    for number, steps in enumerate(zip(left, right, rounding, strict=True), start=1):
        yield agree(*({"loss": step.loss} for step in steps), f"loss of step {number}", names, vacuous)
        yield agree(*(step.optimizer_state for step in steps), f"optimizer state after step {number}", names, vacuous)
        yield agree(*(step.parameters for step in steps), f"parameters after step {number}", names, vacuous)
