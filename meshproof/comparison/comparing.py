"""Two reports, fact by fact: what regressed, changed, improved, is new, is gone, or is the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from meshproof.comparison.accelerators import compare_accelerated
from meshproof.comparison.cases import Pair, compare_case
from meshproof.comparison.differences import Change, Comparison, Difference
from meshproof.comparison.operations import compare_operations
from meshproof.comparison.programs import compare_programs
from meshproof.comparison.release_notes import explain
from meshproof.report.document import ReportError
from meshproof.targets import read_target

ERODED = 0.1
"""A margin (observed / allowed) that changes by less is not reported."""

NOISE = 2.0
"""Compile seconds that change by less than this factor are not reported: the machine may have been busy."""

LEAST_SECONDS = 10.0
"""Compile seconds of all cases below this are not compared: too little to tell."""

INTERFACES = "API-1"
"""The clause on deprecations: *changed*, not *regressed*, while the case still trains."""

FAILING = ("failed", "expected-failure")
FLAGS = {"xla_flags": "XLA_FLAGS", "libtpu_init_args": "LIBTPU_INIT_ARGS"}
HARDWARE = ("platform", "device_kind", "device_count")

Report = Mapping[str, Any]


def compare(old: Report, new: Report) -> Comparison:
    """Compare two reports. Raises `ReportError` if they are of two implementations, which have no facts in common."""
    same_implementation(old["implementation"], new["implementation"])
    environments = old["environment"], new["environment"]
    facts = [] if _other_hardware(*environments) else list(_facts(old, new))
    differences = sorted((fact for fact in facts if fact.change != "same"), key=_order)
    reasons = [*_other_hardware(*environments), *_incomplete(old, new, "old"), *_incomplete(new, old, "new")]
    reasons += _gone(differences)
    if not reasons and not any(fact.kind == "clause" for fact in facts):
        reasons.append("no clause was judged in both runs")
    same = len(facts) - len(differences)
    return Comparison(new["implementation"], *environments, tuple(differences), same, tuple(reasons))


def same_implementation(old: str, new: str) -> None:
    """Raises `ReportError` if the two names differ."""
    if old != new:
        told = f"the old report is of --impl {old}, the new of --impl {new}"
        raise ReportError(f"{told}: two versions of one implementation can be compared, not two implementations")


def _order(difference: Difference) -> tuple[tuple[int, int], str, str]:
    return difference.rank, difference.place, difference.case or ""


def _facts(old: Report, new: Report) -> Iterator[Difference]:
    olds, news = ({case["id"]: case for case in report["cases"]} for report in (old, new))
    for case in dict.fromkeys([*olds, *news]):
        if case not in olds:
            yield Difference("new", "case", case, "case", "not in the report", "in the report")
        elif case not in news:
            yield Difference("gone", "case", case, "case", "in the report", "not in the report")
        else:
            pair = Pair(olds[case], news[case])
            yield from compare_case(pair)
            if read_target(pair.new["target"]).compiles_only:
                yield from compare_accelerated(pair)
    yield from _clauses(old, new, lacking=olds.keys() ^ news.keys())
    yield from compare_operations(old, new)
    yield from compare_programs(old, new)
    yield from _defaults(old["environment"], new["environment"])
    yield from _flags(old["environment"], new["environment"])
    yield from _warnings(old, new)
    if not (old["run"]["warm"] or new["run"]["warm"]):
        yield from _compile_seconds([(olds[case], news[case]) for case in olds if case in news])


def _clauses(old: Report, new: Report, lacking: Set[str]) -> Iterator[Difference]:
    trains = {case["id"] for case in new["cases"] if case["losses"]}
    for fact in _judgements(old, new, lacking):
        announced = fact.place == INTERFACES and fact.change == "regressed" and fact.case in trains
        yield replace(fact, change="changed") if announced else fact


def _judgements(old: Report, new: Report, lacking: Set[str]) -> Iterator[Difference]:
    olds, news = _tests(old), _tests(new)
    for clause, case in dict.fromkeys([*olds, *news]):
        tests = olds.get((clause, case), {}), news.get((clause, case), {})
        was, now = (max(each.values(), key=_severity, default=None) for each in tests)
        if was is None or now is None:
            if case not in lacking or (now or was or {})["status"] in FAILING:
                yield from _judged_once(clause, case, was, now)
            continue
        broken = _broken(*tests)
        change: Change = "regressed" if broken else _clause_change(was["status"], now["status"])
        told = broken or now
        yield Difference(change, "clause", case, clause, was["status"], told["status"], told["message"])
        if change != "gone" and (left := _no_longer(*tests)):
            yield Difference("gone", "clause", case, clause, f"{left[0]} judged", "not judged", ", ".join(left))
        margins = [[test["margin"] for test in each.values() if test["margin"] is not None] for each in tests]
        if all(margins) and now["status"] not in FAILING:
            nearest = [*map(max, margins)]
            moved = nearest[1] - nearest[0]
            change = "same" if abs(moved) <= ERODED else "changed" if moved > 0 else "improved"
            before, after = (f"{margin:.3g} of what is allowed" for margin in nearest)
            yield Difference(change, "margin", case, clause, before, after)


def _tests(report: Report) -> dict[tuple[str, str | None], dict[str, Any]]:
    """The tests of each clause and case, by their names; of two of one name the worse."""
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for clause in report["clauses"]:
        for test in clause["tests"]:
            named = found.setdefault((clause["id"], test["case"]), {})
            named[test["id"]] = max(named.get(test["id"], test), test, key=_severity)
    return found


def _broken(old: Mapping[str, Any], new: Mapping[str, Any]) -> Any | None:
    """The first test that was proved and fails, though another of its clause failed before."""
    return next(
        (test for name, test in new.items() if name in old and old[name]["status"] == "proved" and _fails(test)), None
    )


def _no_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The tests that were judged and are not. One that is not there at all may have another name: it is missed where
    fewer are judged."""
    was, now = (
        {name for name, test in each.items() if _fails(test) or test["status"] == "proved"} for each in (old, new)
    )
    return sorted(was - now if len(now) < len(was) else (was - now) & new.keys())


def _fails(test: Mapping[str, Any]) -> bool:
    return test["status"] in FAILING


def _severity(test: Mapping[str, Any]) -> tuple[int, float]:
    order = ("proved", "not-supported", "not-exercised", "expected-failure", "failed")
    return order.index(test["status"]), test["margin"] or 0.0


def _judged_once(clause: str, case: str | None, was: Any, now: Any) -> Iterator[Difference]:
    """A clause that only one report judges for a case."""
    if now is None:
        if was["status"] in ("proved", *FAILING):
            yield Difference("gone", "clause", case, clause, was["status"], "not judged")
    elif now["status"] in FAILING:
        yield Difference("regressed", "clause", case, clause, "not judged", now["status"], now["message"])
    elif now["status"] == "proved":
        yield Difference("new", "clause", case, clause, "not judged", "proved")


def _clause_change(was: str, now: str) -> Change:
    if was == now:
        return "same"
    if now in FAILING:
        return "changed" if was in FAILING else "regressed"
    if now == "proved":
        return "improved"
    return "gone" if was in ("proved", *FAILING) else "changed"


def _defaults(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """What each stack does where nobody says; of what changed, which release notes name it."""
    olds, news = old["defaults"], new["defaults"]
    for name in dict.fromkeys([*olds, *news]):
        if name not in news:
            yield Difference("gone", "defaults", None, name, str(olds[name]), "not asked")
        elif name not in olds:
            yield Difference("new", "defaults", None, name, "not asked", str(news[name]))
        elif olds[name] != news[name]:
            told = f"{news[name]}; {explain(name, old, new)}"
            yield Difference("changed", "defaults", None, name, str(olds[name]), told)
        else:
            yield Difference("same", "defaults", None, name, str(olds[name]), str(news[name]))


def _flags(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """What the compilers were told otherwise: numbers may differ by that alone."""
    for name, variable in FLAGS.items():
        was, now = (" ".join(sorted((stack.get(name) or "").split())) or "none" for stack in (old, new))
        if was != now:
            yield Difference("changed", "defaults", None, variable, was, now)


def _warnings(old: Report, new: Report) -> Iterator[Difference]:
    """Warnings by class and text, ignoring numbers; a new one with its lines of code and its cases."""
    olds, news = _told(old), _told(new)
    for text in dict.fromkeys([*olds, *news]):
        change: Change = "same" if text in olds and text in news else "new" if text in news else "improved"
        places = Counter(place for place, _ in news.get(text, olds.get(text, ())))
        cases = sorted({case for _, case in news.get(text, ())})
        lines = ", ".join(f"{place} ({_count(count, 'case')})" for place, count in places.most_common(5))
        detail = f"at {lines}" + (f"; first of {cases[0]}" if cases else "")
        before, after = (_count(len(told[text]), "case") if text in told else "not told" for told in (olds, news))
        yield Difference(change, "warnings", None, text, before, after, detail)


def _told(report: Report) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for case in report["cases"]:
        for warned in case["warnings"]:
            text = re.sub(r"0x[0-9a-f]+|\d+", "#", f"{warned['category']}: {warned['message']}")
            found.setdefault(text, []).append((warned["at"], case["id"]))
    return found


def _compile_seconds(pairs: list[tuple[Any, Any]]) -> Iterator[Difference]:
    known = [[case["compile_seconds"] for case in pair] for pair in pairs]
    sums = [sum(pair[side] for pair in known if None not in pair) for side in (0, 1)]
    if min(sums) >= LEAST_SECONDS:
        ratio = sums[1] / sums[0]
        change: Change = "same" if 1 / NOISE <= ratio <= NOISE else "changed" if ratio > 1 else "improved"
        before, after = (f"{total:.1f} s in all cases" for total in sums)
        yield Difference(change, "compile", None, "train steps", before, f"{after}, {ratio:.2f} times as long")


def _other_hardware(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    odd = [f"{name} {old[name]} against {new[name]}" for name in HARDWARE if old[name] != new[name]]
    return [f"the devices differ: {', '.join(odd)}"] if odd else []


def _incomplete(report: Report, other: Report, which: str) -> list[str]:
    """Why a run tells less than it could. A clause that applies to no case is no such reason.

    Nor is a test, if others were judged of its case, of numbers where the target only compiles, or that the other run
    did not exercise for the same reason.
    """
    tests, others = (
        [test for clause in each["clauses"] for test in clause["tests"] if test["case"]] for each in (report, other)
    )
    compiled = {case["id"] for case in report["cases"] if read_target(case["target"]).compiles_only}
    judged = {test["case"] for test in tests if test["status"] not in ("not-exercised", "not-supported")}
    alike = {(test["id"], test["message"]) for test in others if test["status"] == "not-exercised"}
    idle = sum(
        test["status"] == "not-exercised"
        and not (test["case"] in judged and (test["case"] in compiled or (test["id"], test["message"]) in alike))
        for test in tests
    )
    reasons = [f"{_count(idle, 'test')} not exercised in the {which} run"] if idle else []
    if not report["run"]["finished"]:
        reasons.append(f"the {which} run did not finish")
    if not (report["cases"] or report.get("operations") or report.get("programs")):
        reasons.append(f"the {which} run has no case and no operation")
    return reasons


def _gone(differences: list[Difference]) -> list[str]:
    gone = Counter(difference.kind for difference in differences if difference.change == "gone")
    return [f"{_count(count, f'fact of kind {kind}')} in the old report only" for kind, count in gone.items()]


def _count(count: int, what: str) -> str:
    head, _, rest = what.partition(" ")
    return " ".join(filter(None, (f"{count} {head}{'s' if count != 1 else ''}", rest)))
