"""What a run did not judge of its trainers, worst first, and what would open it. None of it was proved."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from meshproof.contract import Strategy
from meshproof.judging.records import Record
from meshproof.judging.spec import GROUPS

MOST = 8
"""Lines that are shown."""

LACKS = re.compile(r"the strategy has no (\w+(?: and no \w+)*)$")
"""Of the reasons why a clause cannot be judged the one that names members."""

OPENS = {
    "the contract promises no ": "declare it in its Contract",
    "the implementation brings no truth": "bring single_device(dtype)",
    "the implementation has no .* to compare with$": "list that one in strategies(), too",
}
"""What opens other reasons, by patterns of how they begin. The rest say it themselves."""

HELD_TO_LESS = {
    "MIX-1": "the same trainer in float32, listed as a strategy of its own",
    "NUM-3": "a step that jax.make_jaxpr can trace, or a single_device('float64') that computes in it",
}
"""By clause what is held to less than a trainer of which the clause notes how wide its bounds are."""


def unjudged(records: Iterable[Record], strategies: Mapping[str, str], targets: Mapping[str, str]) -> list[str]:
    """Lines of the summary: clauses of which a test could judge no case of a strategy, or not the run, by reason, worst
    first.

    ``strategies`` and ``targets`` have each case's; on each target of several a strategy is one of its own. The order
    is that of the groups in SPEC.md, numbers before memory; then the reason that closes more clauses comes first.
    """
    reasons: dict[str, tuple[set[str], set[str]]] = {}
    several = len({*targets.values()}) > 1
    names = {case: f"{name} on {targets[case]}" if several else name for case, name in strategies.items()}
    for clause, name, reason in _closed(records, names):
        clauses, closed = reasons.setdefault(reason, (set(), set()))
        clauses.add(clause)
        closed.add(name)
    found = sorted(reasons.items(), key=lambda item: (min(map(_place, item[1][0])), -len(item[1][0]), item[0]))
    if not found:
        return []
    groups = ",".join(sorted({clause.partition("-")[0] for _, (clauses, _) in found for clause in clauses}, key=_place))
    lines = [f"NOT JUDGED, worst first (--require {groups} makes it a failure):"]
    for reason, (clauses, closed) in found[:MOST]:
        of = f" of {_shown(closed)}" if any(closed) else ""
        lines.append(f"  {', '.join(sorted(clauses, key=_place))}{of}: {reason}")
    if len(found) > MOST:
        lines.append(f"  and for {len(found) - MOST} more reasons: pytest's -rs has them all")
    return lines


def unseen(records: Iterable[Record], strategies: Mapping[str, str], own_judges: Collection[str]) -> list[str]:
    """What no clause can see of strategies whose truth is their own run on one device, and of those that a clause of
    `HELD_TO_LESS` notes wide bounds of."""
    lines = []
    if own_judges:
        lines.append(
            f"NOT SEEN of {_shown(own_judges)}, whose truth is its own run on one device: what that does wrong too, as "
            f"a wrong epsilon or labels that are not shifted; a truth of other code sees it"
        )
    noted: dict[str, dict[str, str]] = {}
    for record in records:
        if record.clause in HELD_TO_LESS and record.status == "proved" and record.message and record.case:
            noted.setdefault(record.clause, {})[strategies[record.case]] = record.message
    for clause, told in noted.items():
        lines.append(f"NOT SEEN of {_shown(told)}: {told[min(told)]}; {HELD_TO_LESS[clause]} is held to less")
    return lines


def _shown(names: Collection[str]) -> str:
    return f"{min(names)}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


def opened(reason: str) -> str:
    """A reason why a clause could not be judged, with what would let it."""
    if lacks := LACKS.match(reason):
        return f"{reason}: bring {', '.join(map(_signature, lacks[1].split(' and no ')))}"
    return next((f"{reason}: {what}" for begins, what in OPENS.items() if re.match(begins, reason)), reason)


def _closed(records: Iterable[Record], strategies: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Clause, strategy and reason, with what opens it, where a test of that clause came to a verdict on no case of that
    strategy. What is judged once a run has no strategy."""
    statuses: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if not record.case or record.case in strategies:
            name = strategies[record.case] if record.case else ""
            statuses.setdefault((record.id.partition("[")[0], name), []).append(record)
    for (_, strategy), tests in statuses.items():
        if {test.status for test in tests} == {"not-supported"}:
            first, *others = dict.fromkeys(test.message for test in tests)
            more = f"; of its other cases, {len(others)} more reason{'s' * (len(others) > 1)}" if others else ""
            yield tests[0].clause, strategy, f"{opened(first)}{more}"


def _signature(member: str) -> str:
    """A member as it is called, where the protocol has it."""
    function = getattr(Strategy, member, None)
    if not inspect.isfunction(function):
        return member
    _, *names = inspect.signature(function).parameters
    return f"{member}({', '.join(names)})"


def _place(clause: str) -> tuple[int, int]:
    """Where a clause, or a group, stands in SPEC.md."""
    group, _, number = clause.partition("-")
    return list(GROUPS).index(group), int(number or 0)
