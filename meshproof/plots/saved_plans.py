"""Plans that `meshproof plan --json` saved: planned again, and drawn only if that gives what the file has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isclose
from typing import Any

from meshproof.planning.document import Planned, answer, document
from meshproof.planning.memory import PRECISIONS
from meshproof.planning.models import Model, PlanError
from meshproof.planning.search import Question
from meshproof.report.schemas import flaw
from meshproof.targets import find_chip

SAME = 1e-12
"""How far apart numbers may be that two machines reckon alike."""


def read_plan(told: Mapping[str, Any]) -> Planned:
    """The plan of a document.

    Raises ``ValueError`` for what is no plan, and for one whose bytes or seconds are not those of today's formulas.
    """
    if problem := flaw(told, "plan"):
        raise PlanError(f"this is JSON, but no plan: {problem}")
    planned = answer(question_of(told))
    today = document(planned)
    for part in ("ladder", "strategies"):
        for difference in differences(told[part], today[part], part):
            raise PlanError(f"at {difference}: it was made by other formulas or figures of chips, or changed since")
    return planned


def question_of(told: Mapping[str, Any]) -> Question:
    """What the plan answers. Raises ``ValueError`` for a chip that is not known, and for sizes that contradict."""
    hardware = told["hardware"]
    known = {name: hardware[name] for name in ("memory", "network_bandwidth")}
    precision = replace(PRECISIONS[told["precision"]], moments=told["moment_bytes"])
    chip = replace(find_chip(hardware["chip"]), **known)
    return Question(Model(**told["model"]), chip, hardware["chips"], told["batch"], precision, hardware["mfu"])


def differences(saved: Any, today: Any, place: str) -> Iterator[str]:
    """Where a document is not what it would be today: the place, what it has, and what it would have."""
    if isinstance(saved, Mapping) and isinstance(today, Mapping):
        for name in {**saved, **today}:
            yield from differences(saved.get(name), today.get(name), f"{place}.{name}")
    elif isinstance(saved, list) and isinstance(today, list) and len(saved) == len(today):
        for number, pair in enumerate(zip(saved, today, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif not (saved == today or are_near(saved, today)):
        yield f"{place}: {shortened(saved)}, which is {shortened(today)} today"


def shortened(value: Any) -> str:
    """A value as it is, or how much there is of it."""
    return f"{len(value)} entries" if isinstance(value, list | Mapping) else repr(value)


def are_near(saved: Any, today: Any) -> bool:
    """Whether both are the same number."""
    numbers = all(isinstance(each, int | float) for each in (saved, today))
    return numbers and isclose(saved, today, rel_tol=SAME)
