"""From what was seen to a test's outcome: its status, its margin, and words that a stranger can act on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

import pytest

from meshproof.cases import Case, has_member
from meshproof.judging.records import Record
from meshproof.measures.layout import LeafLayout
from meshproof.measures.memory import theoretical_bytes
from meshproof.measures.traffic import Traffic
from meshproof.measures.verdicts import Verdict, compared, ratio
from meshproof.observing.observation import Failed, NotExercised, NotSupported, Seen

T = TypeVar("T")


class Judge:
    """Judges one test. Every method either returns or ends the test with its status recorded."""

    def __init__(self, record: Record, alone: str, case: Case | None = None) -> None:
        self.record, self.alone, self.case = record, alone, case

    def see(self, seen: Seen[T] | NotExercised) -> T:
        """What was seen; ends the test where it was not."""
        if isinstance(seen, NotSupported):
            self.record.status, self.record.message = "not-supported", seen.reason
            pytest.skip(f"not supported: {seen.reason}")
        if isinstance(seen, NotExercised):
            self.record.status, self.record.message = "not-exercised", seen.reason
            pytest.skip(f"not exercised: {seen.reason}")
        if isinstance(seen, Failed):
            self.fail([seen.reason])
        return seen

    def promised(self, promise: T | None, what: str) -> T:
        """A part of the contract; ends the test as not supported where the contract leaves it out."""
        return self.see(NotSupported(f"the contract promises no {what}") if promise is None else promise)

    def needs(self, case: Case, *members: str) -> None:
        """Members that the clause judges; ends the test as not supported where the strategy lacks one."""
        absent = [member for member in members if not has_member(case.strategy, member)]
        if absent:
            self.see(NotSupported(f"the strategy has no {' and no '.join(absent)}"))

    def margin(self, observed: float, allowed: float) -> None:
        """Keep the worst ratio of observed to allowed."""
        self.record.margin = max(ratio(observed, allowed), self.record.margin or 0.0)

    def ratio(self, observed: float) -> None:
        """Keep the ratio of observed to theoretical that is furthest from one."""
        self.record.ratio = max((observed, self.record.ratio or 1.0), key=lambda ratio: abs(ratio - 1))

    def numbers(self, verdicts: Iterable[Verdict]) -> None:
        """Every verdict must have passed; the margin is the worst of them."""
        problems = []
        for verdict in verdicts:
            self.margin(verdict.margin, 1.0)
            if not verdict.passed:
                problems.append(str(verdict))
        self.measured(problems)

    def traffic(self, program: str, lanes: Iterable[Traffic]) -> None:
        """There must be no such lanes: what moves in them is not what the budget of this program lists."""
        self.measured([f"{program}: {lane}" for lane in lanes])

    def equal(self, what: str, seen: float, allowed: float, unit: str, source: str) -> None:
        """An amount must be exactly what it is allowed to be; ``source`` says where that comes from."""
        if seen != allowed:
            self.measured([f"{what}: {compared(seen, allowed, unit)}; {source}"])

    def at_most(self, what: str, seen: float, allowed: float, unit: str, source: str) -> None:
        """An amount must not be more than it is allowed to be; ``source`` says where that comes from."""
        if seen > allowed:
            self.measured([f"{what}: {compared(seen, allowed, unit)}; {source}"])

    def declared(self, layout: Iterable[LeafLayout], when: str = "") -> None:
        """Every leaf must lie as its contract declares, by the framework's own equivalence of shardings."""
        mesh = self.case.mesh if self.case else {}
        self.measured(
            [
                f"{leaf.path} {leaf.shape} lies as {leaf.spec}{when and f' {when}'}, declared is {leaf.declared_spec}: "
                f"{compared(leaf.bytes_per_device, theoretical_bytes([leaf], mesh), 'bytes on the fullest device')}"
                if leaf.declared is not None
                else leaf.undeclared
                for leaf in layout
                if not leaf.as_declared
            ]
        )

    def clear(self, problems: Iterable[str]) -> None:
        """There must be no problems; each is a sentence that names what was seen and what was expected."""
        found = list(problems)
        if found:
            self.fail(found)

    def fail(self, problems: list[str]) -> NoReturn:
        """End the test as failed for what holds or does not, by no amount that has a margin."""
        self._violated(problems, "margin: none, this holds or it does not\n")

    def measured(self, problems: list[str]) -> None:
        """There must be no problems; each is a sentence that names what was seen, what is allowed and the margin."""
        if problems:
            self._violated(problems)

    def _violated(self, problems: list[str], margin: str = "") -> NoReturn:
        shown = problems[:12] + ([f"and {len(problems) - 12} more"] if len(problems) > 12 else [])
        lines = "\n".join(f"  - {problem}".replace("\n", "\n  ") for problem in shown)
        where = f" by {self.record.case}" if self.record.case else ""
        pytest.fail(
            f"{self.record.clause} is violated{where}: {self.record.statement}\n{self._case()}{lines}\n{margin}"
            f"alone: {self.alone}",
            pytrace=False,
        )

    def _case(self) -> str:
        """What the parts of the case's id are."""
        if self.case is None:
            return ""
        strategy: Any = self.case.strategy
        mesh = ", ".join(f"{axis}={size}" for axis, size in self.case.mesh.items())
        variant = f", variant {strategy.variant}" if getattr(strategy, "variant", "") else ""
        names = f"strategy {strategy.name}, framework {strategy.framework}, model {strategy.model}{variant}"
        return f"{names}, mesh {mesh}, target {self.case.target}\n"
