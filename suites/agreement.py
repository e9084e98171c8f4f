"""Two observed runs of the same mathematics, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from meshproof.cases import Case
from meshproof.contract import Trajectory
from meshproof.numerics import Verdict, agree, judge_loss
from meshproof.observation import Run


def verdicts(case: Case, run: Run, twin: Case, twin_run: Run, rounding: Trajectory) -> Iterator[list[Verdict]]:
    """The verdicts of each step: its loss, its optimizer state and its parameters, against the twin's."""
    names = (twin.id, case.id)
    for number, (own, other, by) in enumerate(zip(run.steps, twin_run.steps, rounding.steps, strict=True), start=1):
        yield [
            judge_loss(own.loss, other.loss, by.loss, f"loss of step {number}, against {twin.id}"),
            agree(
                other.optimizer_state,
                own.optimizer_state,
                by.optimizer_state,
                f"optimizer state after step {number}",
                names,
            ),
            agree(other.parameters, own.parameters, by.parameters, f"parameters after step {number}", names),
        ]
