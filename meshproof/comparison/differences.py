"""A fact of two reports, and how it changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from meshproof.report.document import PACKAGES, VERSIONED

Change = Literal["regressed", "gone", "changed", "new", "improved", "same"]
CHANGES: tuple[Change, ...] = get_args(Change)
"""In order of severity."""

SIGNS: dict[str, str] = {"regressed": "✗", "gone": "−", "changed": "≠", "new": "+", "improved": "✓"}

Kind = Literal[
    "case", "clause", "checkpoint", "losses", "numbers", "layout", "memory", "wire", "schedule", "collectives", "time",
    "flops", "margin", "defaults", "warnings", "compile", "operation", "moved", "growth",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

Outcome = Literal["regressed", "cannot tell", "changed", "same"]
NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\S*/\S*|[\d.e-]*\d")
"""What is between quotes or in brackets, paths and numbers."""

NAMED = 4
"""The most packages that the verdict names."""

EXIT_CODES: dict[Outcome, int] = {"regressed": 1, "cannot tell": 2, "changed": 0, "same": 0}


@dataclass(frozen=True)
class Difference:
    """One fact: its case (``None``: the stack), its place in the case, and its old and new value in words."""

    change: Change
    kind: Kind
    case: str | None
    place: str
    old: str
    new: str
    detail: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key: severity, then kind."""
        return CHANGES.index(self.change), KINDS.index(self.kind)


@dataclass(frozen=True)
class Comparison:
    """Every difference in order of severity, the number of equal facts, and the reasons why it cannot tell.

    ``exchanged`` says how many checkpoints each of two stacks restored of the other's, where it was tried.
    """

    implementation: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    differences: tuple[Difference, ...]
    same: int
    cannot_tell: tuple[str, ...]
    exchanged: str = ""

    @cached_property
    def counts(self) -> dict[Change, int]:
        """The number of facts by change."""
        found = Counter(difference.change for difference in self.differences)
        return {change: found[change] for change in CHANGES} | {"same": self.same}

    @property
    def outcome(self) -> Outcome:
        """The verdict: *regressed* takes precedence over *cannot tell*."""
        if self.counts["regressed"]:
            return "regressed"
        if self.cannot_tell:
            return "cannot tell"
        return "changed" if self.differences else "same"

    def exit_code(self, fail_on: Sequence[str] = ("regressed",)) -> int:
        """1 if a fact is of a class in ``fail_on``, else 2 if it cannot tell, else 0."""
        if any(self.counts[change] for change in CHANGES if change in fail_on):
            return 1
        return 2 if self.cannot_tell else 0

    def groups(self) -> list[list[Difference]]:
        """Differences grouped by change, kind and place: what forty cases have in common is one line. Of checkpoints
        that is an error, whatever names and numbers are in it."""
        found = dict[tuple[Any, ...], list[Difference]]()
        for each in self.differences:
            said = NAMES.sub("", f"{each.old} {each.new}") if each.kind == "checkpoint" else ""
            found.setdefault((each.rank, each.place, said), []).append(each)
        return [*found.values()]

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        was, now = _versions(self.old, self.new), _versions(self.new, self.old)
        move = f"from {was} to {now}" if was != now else f"between two runs on {now}"
        counted = ", ".join(f"{count:,} {change}" for change, count in self.counts.items() if count)
        first = self.differences[0] if self.differences else None
        if self.outcome == "regressed" and first:
            where = f" of {first.case}" if first.case else ""
            return f"Regressed {move}: first {first.place}{where}: {first.old} → {first.new} ({counted})."
        if self.outcome == "cannot tell":
            return f"Cannot tell what changes {move}: {self.cannot_tell[0]}."
        if self.outcome == "changed":
            return f"Nothing regressed {move} ({counted})."
        return f"Everything is the same {move}: {self.same:,} facts."

    def as_json(self) -> dict[str, Any]:
        """JSON data for the page and for other programs."""
        return {
            "comparison": 1,
            "verdict": self.outcome,
            "sentence": self.sentence,
            "implementation": self.implementation,
            "old": self.old,
            "new": self.new,
            "counts": self.counts,
            "cannot_tell": list(self.cannot_tell),
            "exchanged": self.exchanged,
            "differences": [asdict(difference) for difference in self.differences],
        }


def _versions(stack: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The packages of a stack that differ from the other, most important first; if none do, its JAX and Flax.

    Packages outside the stack that only one of them has, such as a linter, are not named.
    """
    own, others = installed(stack), installed(other)
    for named in (("jax", "flax", "optax", "orbax"), ("jaxlib", "numpy", "python"), sorted(own.keys() & others)):
        if moved := [name for name in named if own[name] != others[name]]:
            rest = f" and {len(moved) - NAMED} packages more" if len(moved) > NAMED else ""
            return ", ".join(f"{name} {own[name] or 'absent'}" for name in moved[:NAMED]) + rest
    return f"jax {stack['jax']}, flax {stack['flax']}"


def installed(stack: Mapping[str, Any]) -> dict[str, Any]:
    """Version and origin of every distribution, by its short name if it has one."""
    packages = dict(stack["packages"])
    named = {name: packages.pop(PACKAGES.get(name, name), stack[name]) for name in VERSIONED}
    return named | packages
