"""Which other case a case is compared with, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import ReferenceTrajectory, Step, leaves
from meshproof.judging.judge import Judge
from meshproof.measures.numerics import VACUOUS, Verdict, agree
from meshproof.measures.trajectories import cancelled
from meshproof.observing.brought_truth import digest
from meshproof.observing.observation import Observation
from meshproof.observing.seen import NotSupported
from meshproof.observing.subject import STEPS

SMALL = 128 << 20
"""Bytes: the VMEM of a TPU v5e or v6e, the most on-chip memory of the known chips (Scaling Book, "How to think about
TPUs"). What fits there is not in the temporary memory that a compiler tells."""

PARTS = ("optimizer_state", "parameters")
"""What two runs are compared by beside the loss, the first that may differ first."""


def unaccumulated(case: Case, cases: Sequence[Case]) -> Case | None:
    """The same trainer without accumulation, or else another form of it with the same contract."""
    return without(case, cases, microbatches=1)


def unrematerialised(case: Case, cases: Sequence[Case]) -> Case | None:
    """The same trainer without recomputation, or else another form of it with the same contract."""
    return without(case, cases, rematerialises=False, spared=None)


def without(case: Case, cases: Sequence[Case], **promises: Any) -> Case | None:
    """A case whose contract is the same but for ``promises`` and the step's budget; of the same strategy, if any is."""
    whole = replace(case.contract, step=None, explicit=False, **promises)
    alike = [
        other
        for other in cases
        if replace(other.contract, step=None, explicit=False) == whole and share_truth(case, other)
    ]
    return min(alike, key=lambda other: other.strategy.name != case.strategy.name, default=None)


def needs_size(case: Case, held: int, judge: Judge) -> None:
    """Ends the test as not supported where a compiler for an accelerator allocates little: nobody saves what fits the
    chip's own buffers, and tiles and alignment outweigh what should be saved."""
    if case.compiles_only and held < SMALL:
        told = f"{held:,} bytes are too few to save some on this target: what fits its on-chip memory costs nothing"
        judge.see(NotSupported(f"{told}; bring a size that takes {SMALL:,} bytes or more"))


def share_truth(case: Case, other: Case) -> bool:
    """Whether two cases must compute the same numbers on the same mesh.

    Either their truths are equal, or they are one strategy of one model that starts from the same values on the same
    examples: then one of the truths may have been bent to fit its trainer, and the comparison shows it. Of two that
    bring none nobody knows: they may be trained by other optimizers.
    """
    names, (one, two) = ("framework", "model"), (case.strategy, other.strategy)
    if any(getattr(one, name) != getattr(two, name) for name in names):
        return False
    if (case.mesh, case.target) != (other.mesh, other.target):
        return False
    truths = [getattr(strategy, "truth", None) for strategy in (one, two)]
    return None not in truths and (truths[0] == truths[1] or (one.name == two.name and start(case) == start(other)))


@cache
def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Of a truth's canonical parameters, by path: to know them, all values are drawn."""
    strategy: Any = case.strategy
    return {path: value.shape for path, value in leaves(strategy.truth.initial_parameters())}


def start(case: Case) -> str:
    """A digest of the start values and the examples that a case trains from."""
    strategy: Any = case.strategy
    return digest([strategy.truth.initial_parameters(), *strategy.batches(STEPS)])


def needs_one_start(one: tuple[Case, Observation], two: tuple[Case, Observation], judge: Judge) -> None:
    """Ends the test as not supported if two trainers start from other parameters: then they need not agree.

    Of those that bring a truth, both were started from its values.
    """
    if all(has_member(case.strategy, "truth") for case, _ in (one, two)):
        return
    left, right = (dict(leaves(judge.see(seen.start.parameters))) for _, seen in (one, two))
    if left.keys() != right.keys() or not all(np.array_equal(left[path], right[path]) for path in left):
        judge.see(NotSupported(f"{two[0].id} starts from other parameters: bring a truth, whose values both load"))


def agree_steps(
    left: Sequence[Step],
    right: Sequence[Step],
    truth: ReferenceTrajectory,
    names: tuple[str, str],
    vacuous: float = VACUOUS,
    parts: Sequence[str] = PARTS,
) -> Iterator[Verdict]:
    """Verdicts on whether two runs agree on loss, and on these parts of the state, after every step."""
    zero = cancelled(truth)
    for number, steps in enumerate(zip(left, right, truth.rounding.steps, strict=True), start=1):
        yield agree(*({"loss": step.loss} for step in steps), f"loss of step {number}", names, vacuous)
        for part in parts:
            told = f"{part.replace('_', ' ')} after step {number}"
            yield agree(*(getattr(step, part) for step in steps), told, names, vacuous, zero)
