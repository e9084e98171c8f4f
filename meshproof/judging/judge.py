"""From an observation to a test's outcome: its status, its margin, and its failure message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NoReturn, TypeVar

import pytest

from meshproof.cases import Case, has_member
from meshproof.contract import Communication
from meshproof.judging.records import Record
from meshproof.measures.layout import LeafLayout
from meshproof.measures.memory import theoretical_bytes
from meshproof.measures.traffic import Traffic
from meshproof.measures.verdicts import Verdict, ratio, unequal
from meshproof.observing.seen import Failed, NotExercised, NotSupported, Seen, ToldOnce

T = TypeVar("T")

LONGEST = 500
"""Characters of a clause that a failure shows: what a stranger reads before he wants to know what was seen."""


class Judge:
    """Judges one test. Every method either returns, or records a status and ends the test.

    ``alone`` is the command that runs the test alone; ``case`` is ``None`` if the stack is judged. ``required`` are the
    groups and clauses of which what is not supported fails.
    """

    def __init__(self, record: Record, alone: str, case: Case | None = None, required: Sequence[str] = ()) -> None:
        self.record, self.alone, self.case, self.required = record, alone, case, required

    def see(self, seen: Seen[T] | NotExercised) -> T:
        """What was seen; if it was not, the test ends as not supported, not exercised or failed."""
        if isinstance(seen, NotSupported):
            for word in self.required:
                if word in (self.record.clause, self.record.clause.partition("-")[0]):
                    self.fail([f"{seen.reason}; --require {word} demands a verdict"], "is not judged of")
            self.record.status, self.record.message = "not-supported", seen.reason
            pytest.skip(f"not supported: {seen.reason}")
        if isinstance(seen, NotExercised):
            self.record.status, self.record.message = "not-exercised", seen.reason
            pytest.skip(f"not exercised: {seen.reason}")
        if isinstance(seen, ToldOnce) and self.record.clause != seen.clause:
            first = seen.reason.splitlines()[0].removesuffix("; its last words:")
            self.see(NotSupported(f"{seen.clause} fails: {first}"))
        if isinstance(seen, Failed):
            self.fail([seen.reason])
        return seen

    def promised(self, promise: T | None, what: str) -> T:
        """A part of the contract; if the contract leaves it out, the test ends as not supported."""
        return self.see(NotSupported(f"the contract promises no {what}") if promise is None else promise)

    def budget(self, program: Literal["forward", "step"]) -> tuple[Communication, ...]:
        """The contract's lines of the forward pass, or of the train step."""
        assert self.case
        name = {"forward": "forward pass", "step": "train step"}[program]
        return self.promised(getattr(self.case.contract, program), f"communication budget of the {name}")

    def counterpart(self, found: Case | None, what: str) -> Case:
        """Another case to compare with; if there is none, the test ends as not supported."""
        return self.see(NotSupported(f"the implementation has no {what} to compare with") if found is None else found)

    def needs(self, case: Case, *members: str) -> None:
        """Members that the clause judges; if the strategy lacks one, the test ends as not supported."""
        absent = [member for member in members if not has_member(case.strategy, member)]
        if absent:
            self.see(NotSupported(f"the strategy has no {' and no '.join(absent)}"))

    def note(self, message: str) -> None:
        """Say in the report what a verdict rests on, where that is less than usual."""
        self.record.message = message

    def margin(self, observed: float, allowed: float) -> None:
        """Record ``observed / allowed``, if it is the worst so far."""
        self.record.margin = max(ratio(observed, allowed), self.record.margin or 0.0)

    def ratio(self, observed: float) -> None:
        """Record a ratio of observed to theoretical bytes, if it is the furthest from 1 so far."""
        self.record.ratio = max((observed, self.record.ratio or 1.0), key=lambda ratio: abs(ratio - 1))

    def numbers(self, verdicts: Iterable[Verdict], beside: Seen[tuple[str, ...]] = ()) -> None:
        """Every verdict must have passed. Records the worst of their margins. If one has not, what was seen ``beside``
        is said behind it."""
        problems = []
        for verdict in verdicts:
            self.margin(verdict.margin, 1.0)
            if not verdict.passed:
                problems.append(str(verdict))
        self.clear([*problems, *(beside if problems and isinstance(beside, tuple) else ())])

    def traffic(self, program: str, lanes: Iterable[Traffic]) -> None:
        """There must be no such lanes: each moves other bytes than the budget of ``program`` lists."""
        self.clear(f"{program}: {lane}" for lane in lanes)

    def equal(self, what: str, seen: float, expected: float, unit: str, source: str) -> None:
        """An amount must be exactly ``expected``; ``source`` says where that comes from."""
        if seen != expected:
            self.fail([f"{what}: {unequal(seen, expected, unit)}; {source}"])

    def at_most(self, what: str, seen: float, allowed: float, unit: str, source: str) -> None:
        """An amount must not exceed ``allowed``; ``source`` says where that comes from."""
        if seen > allowed:
            margin = f"margin {ratio(seen, allowed):.4g}"
            self.fail([f"{what}: saw {seen:,} {unit}, allowed at most {allowed:,}, {margin}; {source}"])

    def declared(self, layout: Iterable[LeafLayout], when: str) -> None:
        """Every leaf must be sharded as its contract declares, by JAX's own equivalence of shardings.

        ``when`` it was looked at, such as "after init", is for messages.
        """
        mesh = self.case.mesh if self.case else {}
        problems = []
        for leaf in layout:
            if leaf.declared is None:
                problems.append(leaf.undeclared)
            elif not leaf.as_declared:
                held, expected = leaf.bytes_per_device, theoretical_bytes([leaf], mesh)
                more = f"; fullest device: {unequal(held, expected, 'bytes')}" if held != expected else ""
                placed = f"expected {leaf.declared_spec}, is {leaf.placed}"
                problems.append(f"{leaf.path} {leaf.shape}, {when}: {placed}{more}")
        self.clear(problems)

    def clear(self, problems: Iterable[str]) -> None:
        """There must be no problems; each is a sentence that says where, what was expected and what was seen."""
        found = list(problems)
        if found:
            self.fail(found)

    def fail(self, problems: list[str], how: str = "is violated by") -> NoReturn:
        """End the test as failed, for these problems, of which the first twelve are shown."""
        shown = problems[:12] + ([f"and {len(problems) - 12} more"] if len(problems) > 12 else [])
        lines = "\n".join(f"  - {problem}".replace("\n", "\n  ") for problem in shown)
        what = f"{how} {self.record.case}" if self.record.case else how.rpartition(" ")[0]
        pytest.fail(
            f"{self.record.clause} {what}: {brief(self.record.statement)}\n"
            f"{self._case()}{lines}\nrun it alone: {self.alone}",
            pytrace=False,
        )

    def _case(self) -> str:
        """The parts of the case's id, named."""
        if self.case is None:
            return ""
        strategy: Any = self.case.strategy
        mesh = ", ".join(f"{axis}={size}" for axis, size in self.case.mesh.items())
        variant = f", variant {strategy.variant}" if getattr(strategy, "variant", "") else ""
        names = f"strategy {strategy.name}, framework {strategy.framework}, model {strategy.model}{variant}"
        return f"{names}, mesh {mesh}, target {self.case.target}\n"


def brief(statement: str) -> str:
    """A clause, or of a long one the sentences that fit; the rest of its explanation is in SPEC.md."""
    if len(statement) <= LONGEST:
        return statement
    return f"{statement[:LONGEST].rpartition('. ')[0]}. More in SPEC.md.)"
