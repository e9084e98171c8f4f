"""Which release of which package brought a change: the releases between two stacks, halved until one is left."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from meshproof.comparison import Difference, compare
from meshproof.environments import StackError, releases
from meshproof.report.document import PACKAGES
from meshproof.upgrade.runs import RunError

Pins = Mapping[str, str]
"""Versions by package: the part of a stack that a user names."""

Run = Callable[[Pins], dict[str, Any]]
"""Runs the suites on a stack and returns their report. Raises `StackError` or `RunError`."""

STACK = {name: package for name, package in PACKAGES.items() if name != "jaxlib"}
"""Packages that may be the cause, by their names in a report; jaxlib goes with jax."""

SOUGHT = ("regressed", "gone", "changed")


class BisectError(Exception):
    """Nothing to bisect; the message says why."""


class UnseenError(RunError):
    """A run that does not show the fact in question: it is neither good nor bad."""


@dataclass(frozen=True)
class Step:
    """The releases of a package after the last good one, up to the first bad one: one, if it is certain.

    ``unjudged`` says why there is no verdict of some of them, or of the package moved alone.
    """

    package: str
    before: str
    suspects: tuple[str, ...]
    old: Pins
    new: Pins
    unjudged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """What changed, and its origin: several steps if no package can be moved alone."""

    fact: Difference
    steps: tuple[Step, ...]

    @property
    def certain(self) -> bool:
        """Whether one release of one package is the cause."""
        return len(self.steps) == 1 and len(self.steps[0].suspects) == 1


def read_pins(requirements: Sequence[str]) -> dict[str, str]:
    """Versions by name, of ``name==version``. Raises `BisectError` for other requirements, such as ranges."""
    found = {}
    for text in requirements:
        requirement = Requirement(text)
        pins = [each.version for each in requirement.specifier if each.operator == "=="]
        if len(pins) != 1 or len(requirement.specifier) != 1 or "*" in pins[0]:
            raise BisectError(f"{text!r} names no release; expected the like of {requirement.name}==0.10.2")
        found[requirement.name] = pins[0]
    return found


def bisect(good: Pins, bad: Pins, run: Run, clause: str | None = None, pre: bool = False) -> Origin:
    """Find the release that brought the most serious difference between two stacks, of ``clause`` if one is given.

    One package is moved at a time, named ones first, then those that were resolved to other releases. A release is bad
    if the fact differs at least as seriously. If the fact is gone, the release is unknown, unless *gone* is what is
    sought. Raises `BisectError`, `StackError`, `RunError`.
    """
    if good.keys() != bad.keys():
        raise BisectError(f"--good names {', '.join(good)}, --bad {', '.join(bad)}; expected the same packages in both")
    if all(Version(good[name]) == Version(bad[name]) for name in good):
        raise BisectError("--good and --bad name the same releases; there is nothing between them")
    first, last = run(good), run(bad)
    fact = _symptom(first, last, clause)
    good, bad = _resolved(good, first), _resolved(bad, last)
    moving = [name for name in good if Version(good[name]) != Version(bad[name])]

    def changed(pins: Pins) -> Difference | None:
        compared = compare(first, run(pins))
        found = [each for each in compared.differences if _key(each) == _key(fact)]
        found = found or [each for each in compared.differences if _hides(each, fact)]
        if not any(compared.counts.values()) or (found and found[0].change == "gone" != fact.change):
            raise UnseenError(f"{fact.kind} {fact.place} of {fact.case or 'the stack'} is not seen")
        return next((each for each in found if each.rank <= fact.rank), None)

    steps = _attribute(good, bad, moving, changed, pre)
    return Origin(changed(steps[0].new) or fact, steps)


def _resolved(pins: Pins, report: Mapping[str, Any]) -> Pins:
    """The pins, and the resolved versions of packages that were not named."""
    found = {package: report["environment"][name] for name, package in STACK.items()}
    return {**pins, **{package: version for package, version in found.items() if version and package not in pins}}


def _symptom(good: dict[str, Any], bad: dict[str, Any], clause: str | None) -> Difference:
    compared = compare(good, bad)
    found = [
        difference
        for difference in compared.differences
        if difference.change in SOUGHT and difference.kind != "compile"
        if clause is None or (difference.place == clause and difference.kind in ("clause", "margin"))
    ]
    if not found and compared.cannot_tell:
        raise BisectError(f"it cannot be told what --bad changes: {compared.cannot_tell[0]}")
    if not found:
        what = f"{clause} says the same" if clause else "all facts are the same"
        raise BisectError(f"{what} on --good and on --bad: there is no change to find; choose other cases with -k")
    return found[0]


def _key(difference: Difference) -> tuple[str, str | None, str]:
    return difference.kind, difference.case, difference.place


def _hides(difference: Difference, fact: Difference) -> bool:
    """Whether a fact is hidden because a larger one that contains it is gone."""
    if difference.change != "gone" or difference.case != fact.case:
        return False
    match difference.kind, fact.kind:
        case ("case", _) | ("losses", "losses"):
            return True
        case "collectives", "collectives":
            return fact.place.startswith(f"{difference.place}: ")
        case "clause", "margin":
            return fact.place == difference.place
    return False


def _attribute(
    good: Pins, bad: Pins, moving: Sequence[str], changed: Callable[[Pins], object], pre: bool
) -> tuple[Step, ...]:
    """The first package that decides when moved alone from the good stack, or alone back from the bad; its release."""
    if len(moving) == 1:
        return (_search(good, bad, moving[0], changed, pre),)
    unjudged: dict[str, dict[str, str]] = {package: {} for package in moving}
    for package in moving:
        for old, new, crossing in (
            (good, {**good, package: bad[package]}, f"{bad[package]} beside the others of --good"),
            ({**bad, package: good[package]}, bad, f"{good[package]} beside the others of --bad"),
        ):
            try:
                if not changed(old) and changed(new):
                    return (_search(old, new, package, changed, pre),)
            except (StackError, RunError) as error:
                unjudged[package][crossing] = _in_a_line(error)
    return tuple(
        Step(name, good[name], tuple(_between(good, bad, name, pre)), good, bad, unjudged[name]) for name in moving
    )


def _between(good: Pins, bad: Pins, package: str, pre: bool) -> list[str]:
    """The releases after the good one, up to the bad one, in that order."""
    low, high = sorted((good[package], bad[package]), key=Version)
    inner = sorted(releases(package, low, high, pre), key=Version, reverse=low != good[package])
    return [*inner, bad[package]]


def _search(good: Pins, bad: Pins, package: str, changed: Callable[[Pins], object], pre: bool) -> Step:
    """Halve. A release without verdict is skipped, and stays a suspect if it ends up between good and bad."""
    order = [good[package], *_between(good, bad, package, pre)]
    unknown: dict[int, str] = {}
    low, high = 0, len(order) - 1
    while candidates := [i for i in range(low + 1, high) if i not in unknown]:
        middle = candidates[len(candidates) // 2]
        try:
            if changed({**good, package: order[middle]}):
                high = middle
            else:
                low = middle
        except (StackError, RunError) as error:
            unknown[middle] = _in_a_line(error)
    suspects = tuple(order[low + 1 : high + 1])
    unjudged = {order[place]: unknown[place] for place in range(low + 1, high)}
    return Step(package, order[low], suspects, {**good, package: order[low]}, {**good, package: order[high]}, unjudged)


def _in_a_line(error: Exception) -> str:
    """How an error begins, and how it ends: between the two is what a resolver or a run printed."""
    first, *rest = filter(None, map(str.strip, str(error).splitlines()))
    return f"{first} … {rest[-1]}" if rest else first


def describe(origin: Origin, options: Sequence[str] = ()) -> str:
    """The verdict, the fact before and after, and the command that shows it again."""
    fact, step = origin.fact, origin.steps[0]
    if origin.certain:
        verdict = f"{step.package} {step.suspects[0]} brought it; {step.package} {step.before} does not have it"
    else:
        named = chain.from_iterable([f"{each.package} {version}" for version in each.suspects] for each in origin.steps)
        verdict = f"ambiguous: one of {', '.join(named)}; the releases between cannot be installed, run or judged alone"
    old, new = (",".join(f"{name}=={version}" for name, version in pins.items()) for pins in (step.old, step.new))
    lines = [
        verdict,
        *(
            f"  not judged: {each.package} {what}: {why}"
            for each in origin.steps
            for what, why in each.unjudged.items()
        ),
        f"{fact.change}: {fact.kind} {fact.place} of {fact.case or 'the stack'}",
        f"  before: {fact.old}",
        f"  after:  {fact.new}",
        *(f"  {line}" for line in fact.detail.splitlines()),
        f"to see it again: {shlex.join(['meshproof', 'upgrade', '--from', old, '--to', new, *options])}",
    ]
    return "\n".join(lines)
