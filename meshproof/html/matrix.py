"""Strategy × clause group, and every clause: the number of tests by status, in the old report and in the new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshproof.report.document import STATUSES

Report = Mapping[str, Any]
Key = tuple[str | None, str]


@dataclass(frozen=True)
class Cell:
    """The number of tests by status; ``old`` is empty without an old report."""

    old: Counter[str]
    new: Counter[str]
    compared: bool

    @property
    def status(self) -> str | None:
        """The first of `STATUSES` that any new test has, or any old one if there is no new test."""
        return next((status for counts in (self.new, self.old) for status in STATUSES if counts[status]), None)

    @property
    def tone(self) -> str | None:
        """The colour: that of the status, or of a change if fewer tests are proved than before and none fails."""
        fewer = self.compared and self.new["proved"] < self.old["proved"]
        return "changed" if fewer and self.status != "failed" else self.status

    @property
    def changed(self) -> bool:
        """Whether old and new differ."""
        return self.compared and self.old != self.new


@dataclass(frozen=True)
class Matrix:
    """A row of cells for each strategy; ``None`` is the row of tests without a case."""

    groups: tuple[str, ...]
    rows: tuple[tuple[str | None, tuple[Cell, ...]], ...]


def build_matrix(new: Report, old: Report | None) -> Matrix:
    """The matrix of all strategies of both reports, those of the new one first."""
    olds, news = ({} if report is None else _count(report) for report in (old, new))
    keys = olds | news
    groups = tuple(sorted({group for _, group in keys}))
    names: list[str | None] = list(list_strategies(new, old))
    if any(strategy is None for strategy, _ in keys):
        names.append(None)

    def cell(key: Key) -> Cell:
        return Cell(olds.get(key, Counter()), news.get(key, Counter()), old is not None)

    rows = tuple((name, tuple(cell((name, group)) for group in groups)) for name in names)
    return Matrix(groups, rows)


def list_strategies(new: Report, old: Report | None) -> list[str]:
    """The names in both reports, in their order, those of the new one first."""
    return list(dict.fromkeys(case["strategy"] for report in (new, old) if report for case in report["cases"]))


def pair_clauses(new: Report, old: Report | None) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """Every clause of both reports: old, new."""
    olds, news = ({clause["id"]: clause for clause in report["clauses"]} if report else {} for report in (old, new))
    return [(olds.get(name), news.get(name)) for name in sorted(olds | news, key=_natural)]


def _natural(clause: str) -> tuple[str, int, str]:
    group, _, number = clause.partition("-")
    return group, len(number), number


def _count(report: Report) -> dict[Key, Counter[str]]:
    counts: dict[Key, Counter[str]] = {}
    for key, status in _statuses(report):
        counts.setdefault(key, Counter())[status] += 1
    return counts


def _statuses(report: Report) -> Iterator[tuple[Key, str]]:
    strategies = {case["id"]: case["strategy"] for case in report["cases"]}
    for clause in report["clauses"]:
        for test in clause["tests"]:
            yield (strategies.get(test["case"]), clause["id"].partition("-")[0]), test["status"]
