"""From what was seen to a test's outcome: its status, its margin, and words that a stranger can act on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, NoReturn, TypeVar

import numpy as np
import pytest

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Judgement, Truth, leaves, nest
from meshproof.layout import LeafLayout
from meshproof.memory import theoretical_bytes
from meshproof.observation import STEPS, Failed, NotExercised, NotSupported, Observation, Seen
from meshproof.report import Status
from meshproof.returned import canonical, judgement, origin
from meshproof.traffic import Traffic
from meshproof.verdicts import Verdict, compared, ratio

T = TypeVar("T")


@dataclass
class Record:
    """What one test found out: the line that the report keeps of it.

    ``margin`` is the worst error over its allowance; ``ratio`` the bytes moved over the theoretical bytes.
    ``expectation`` has the entries that cover the test, and whether it failed as they say.
    """

    id: str
    clause: str
    statement: str
    case: str | None
    status: Status = "not-exercised"
    margin: float | None = None
    ratio: float | None = None
    message: str = ""
    expectation: dict[str, Any] | None = None

    def conclude(self, report: pytest.TestReport) -> None:
        """Take over the outcome of one phase of the test."""
        if report.failed:
            self.status, self.message = "failed", report.longreprtext
        elif report.skipped and hasattr(report, "wasxfail"):
            self.status, self.message = "expected-failure", f"{report.wasxfail}\n{report.longreprtext}"
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.message = self.message or report.longrepr[2]
        elif report.when == "call" and report.passed:
            self.status = "proved"


RECORD = pytest.StashKey[Record]()


def record_of(item: pytest.Item) -> Record:
    """The record of a test, the same one in all its phases."""
    return item.stash.setdefault(RECORD, _new_record(item))


def case_of(item: pytest.Item) -> Case | None:
    """The case of a test; some judge the stack itself."""
    case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
    return case if isinstance(case, Case) else None


def _new_record(item: pytest.Item) -> Record:
    marker = item.get_closest_marker("clause")
    assert marker is not None
    function: Any = getattr(item, "function", None)
    statement = " ".join(cleandoc(function.__doc__ or "").split("\n\n")[0].split())
    case = case_of(item)
    return Record(item.nodeid, marker.args[0], statement, case.id if case else None)


class Judge:
    """Judges one test. Every method either returns or ends the test with its status recorded."""

    def __init__(self, record: Record, options: str, case: Case | None = None) -> None:
        self.record, self.options, self.case = record, options, case

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
            f"alone: pytest '{self.record.id}'{self.options}",
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


class Truths:
    """The truth of every case, computed once for all that start from the same values and see the same batches.

    Where the implementation brings none, its own run on one device, on the batches that it was observed on.
    """

    def __init__(self) -> None:
        self.computed: dict[tuple[Any, str], tuple[Truth, Judgement]] = {}
        self.usual: dict[str, Seen[Judgement]] = {}

    def of(self, case: Case, observation: Observation, batches: Iterable[Batch] | None = None) -> Seen[Judgement]:
        """Trained from the canonical values where the strategy can load them, else from what its ``init`` made.

        On the batches that the strategy was observed on, or on others.
        """
        if not has_member(case.strategy, "truth"):
            if batches is not None or not has_member(case.strategy, "single_device"):
                return NotSupported("the implementation brings no truth")
            return observation.own_truth
        if batches is not None:
            return self.trained(case, observation, batches)
        if case.id not in self.usual:
            self.usual[case.id] = self.trained(case, observation, case.strategy.batches(STEPS))
        return self.usual[case.id]

    def trained(self, case: Case, observation: Observation, batches: Iterable[Batch]) -> Seen[Judgement]:
        """The truth of a case on these batches; or what it raised and where, or what its result lacks."""
        truth: Truth = case.strategy.truth  # type: ignore[attr-defined]
        try:
            if has_member(case.strategy, "load"):
                start = dict(leaves(canonical(truth.initial_parameters(), "initial_parameters")))
            elif isinstance(observation.initial, (NotSupported, Failed)):
                return observation.initial
            else:
                start = observation.initial
            given = tuple(batches)
            key = (identity(truth), digest([start, *given]))
            if key not in self.computed:
                self.computed[key] = truth, judgement(truth.train(nest(start), given), len(given))
            return self.computed[key][1]
        except Exception as error:
            return Failed(f"truth, a {type(truth).__name__}: {type(error).__name__}: {error} ({origin(error)})")


def identity(truth: Truth) -> Any:
    """What a truth is found by again: any that equals it, but where it has no hash the object alone."""
    try:
        hash(truth)
    except TypeError:
        return id(truth)
    return truth


def digest(trees: list[Any]) -> str:
    """A name for the content of these trees of arrays."""
    content = hashlib.sha256()
    for tree in trees:
        for path, value in leaves(tree):
            array = np.ascontiguousarray(value)
            content.update(f"{path} {array.dtype} {array.shape}".encode())
            content.update(array.tobytes())
    return content.hexdigest()
