"""What the selected tests of a run ask for: what nobody asks for is not observed, and one fault is told once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from meshproof.cases import Case
from meshproof.judging.records import case_of
from meshproof.observing.observation import Outcome
from meshproof.observing.process import Observer
from meshproof.observing.seen import Failed, ToldOnce

ANSWERS = "RUN-1"
"""The clause that each case answers."""


@dataclass(frozen=True)
class Selection:
    """Whether ``checkpoints`` are judged, and of which cases it is judged that they answer."""

    checkpoints: bool = True
    answering: frozenset[str] = frozenset()

    def observe(self, case: Case, observer: Observer) -> Outcome:
        """The observation; why there is none fails the one clause that judges that, if it was selected, and all other
        clauses of the case if it was not."""
        seen = observer.observation(case.id, self.checkpoints)
        if isinstance(seen, Failed) and case.id in self.answering:
            return ToldOnce(seen.reason, ANSWERS)
        return seen


def read_selection(items: Iterable[pytest.Item]) -> Selection:
    """What these tests ask for."""
    asked = [(mark.args[0], case_of(item)) for item in items if (mark := item.get_closest_marker("clause"))]
    return Selection(
        checkpoints=any(clause.startswith("CKP-") for clause, _ in asked),
        answering=frozenset(case.id for clause, case in asked if clause == ANSWERS and case),
    )
