"""Which other case a case is compared with, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from meshproof.cases import Case
from meshproof.contract import Step
from meshproof.numerics import VACUOUS, Verdict, agree


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
    """Whether two cases must compute the same numbers, on the same mesh."""
    strategies = case.strategy, other.strategy
    left, right = ([getattr(s, name, None) for name in ("framework", "model", "truth")] for s in strategies)
    return left == right and (case.mesh, case.target) == (other.mesh, other.target)


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
