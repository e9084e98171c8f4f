"""Each strategy of a page: its cases with their charts, its differences, and its failing tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshproof.html.bars import Bar, census_bars, memory_bars
from meshproof.html.differences import Group, group_differences
from meshproof.html.layouts import Layout, compare_layouts
from meshproof.html.losses import LossChart, draw_losses
from meshproof.html.matrix import list_strategies

Report = Mapping[str, Any]
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """A test that failed, expected or not, in one case or many, and its status in the old report."""

    clause: Mapping[str, Any]
    name: str
    status: str
    before: str | None
    tests: tuple[Entry, ...]


@dataclass(frozen=True)
class CaseView:
    """One case in either report, or in both."""

    old: Entry | None
    new: Entry | None
    changes: Counter[str]
    failed: int
    losses: LossChart | None
    census: tuple[tuple[str, tuple[Bar, ...] | None], ...]
    memory: tuple[Bar, ...]
    layouts: tuple[Layout, ...]
    margins: tuple[tuple[str, float] | None, tuple[str, float] | None]

    @property
    def shown(self) -> Entry:
        """The new case, or the old one if it is gone."""
        return self.new or self.old or {}


@dataclass(frozen=True)
class StrategyView:
    """A strategy, its cases in the order of the reports."""

    name: str
    cases: tuple[CaseView, ...]
    differences: list[Group]
    changes: Counter[str]
    failures: list[Failure]

    @property
    def failed(self) -> int:
        """The number of unexpected failures."""
        return sum(case.failed for case in self.cases)


def build_strategies(new: Report, old: Report | None, differences: Sequence[Entry]) -> list[StrategyView]:
    """All strategies of both reports, those of the new one first."""
    news, olds = ({case["id"]: case for case in report["cases"]} if report else {} for report in (new, old))
    strategies = {name: case["strategy"] for name, case in (olds | news).items()}
    views = []
    for strategy in list_strategies(new, old):
        names = [name for name in {**news, **olds} if strategies[name] == strategy]
        failures = find_failures(new, old, names)
        failed = Counter(test["case"] for failure in failures if failure.status == "failed" for test in failure.tests)
        own = [entry for entry in differences if entry["case"] in names]
        changes = {name: Counter(entry["change"] for entry in own if entry["case"] == name) for name in names}
        cases = tuple(_view(olds.get(name), news.get(name), changes[name], failed[name]) for name in names)
        total = Counter(entry["change"] for entry in own)
        views.append(StrategyView(strategy, cases, group_differences(own), total, failures))
    return views


def find_failures(new: Report, old: Report | None, cases: Collection[str | None]) -> list[Failure]:
    """The new report's failed tests of these cases, then those that were expected to fail."""
    before = {
        (clause["id"], test["id"]): test["status"]
        for clause in (old["clauses"] if old else ())
        for test in clause["tests"]
    }
    failures = []
    for clause in new["clauses"]:
        found: dict[tuple[str, str, str | None], list[Entry]] = {}
        for test in clause["tests"]:
            if test["case"] in cases and test["status"] in ("failed", "expected-failure"):
                name = test["id"].partition("[")[0].rpartition("::")[2]
                found.setdefault((name, test["status"], before.get((clause["id"], test["id"]))), []).append(test)
        failures += [Failure(clause, *key, tuple(tests)) for key, tests in found.items()]
    return sorted(failures, key=lambda failure: failure.status != "failed")


def _view(old: Entry | None, new: Entry | None, changes: Counter[str], failed: int) -> CaseView:
    pair = (old, new)
    census = (
        ("train step", census_bars(pair, "collectives")),
        ("forward pass", census_bars(pair, "forward_collectives")),
    )
    return CaseView(
        old,
        new,
        changes,
        failed,
        draw_losses(pair),
        census,
        memory_bars(pair),
        compare_layouts(pair),
        (_worst(old), _worst(new)),
    )


def _worst(case: Entry | None) -> tuple[str, float] | None:
    """The number with the largest margin, and that margin."""
    margins = [(name, error["margin"]) for name, error in (case["errors"] if case else {}).items()]
    known = [(name, margin) for name, margin in margins if margin is not None]
    return max(known, key=lambda each: each[1], default=None)
