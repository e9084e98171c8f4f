"""Single operations in two reports: what became of each layout and direction, and what its program moves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from meshproof.comparison.differences import Change, Difference, Kind

ORDER = ("right", "refused", "broken", "wrong")
"""From the best of what can become of a layout to the worst."""

FAULTS = ("broken", "wrong")
DIRECTIONS = ("forward", "gradient")
NUMBER = re.compile(r"-?\b(?:\d[\d.,]*(?:e[+-]?\d+)?|nan|inf)\b")

Layout = Mapping[str, Any]
Report = Mapping[str, Any]


def compare_operations(old: Report, new: Report) -> Iterator[Difference]:
    """Every fact of the operations that both runs judged.

    Layouts that only one run had say nothing: `--exhaustive` has more of them.
    """
    pairs, absent = paired(old, new, "operations", "operation")
    yield from absent
    for name, was, now in pairs:
        yield problem("operation", name, ("on one device", "right"), was, now)
        for layout in was["layouts"].keys() & now["layouts"].keys():
            yield from _layout(name, layout, was["layouts"][layout], now["layouts"][layout])


def paired(
    old: Report, new: Report, member: str, kind: Kind
) -> tuple[list[tuple[str, Report, Report]], list[Difference]]:
    """The entries of a member that both reports have, with their id; and each that only one has, which is a fact."""
    olds, news = ({entry["id"]: entry for entry in report.get(member) or ()} for report in (old, new))
    both = [(name, olds[name], news[name]) for name in olds if name in news]
    gone = [Difference("gone", kind, name, kind, "judged", "not judged") for name in olds if name not in news]
    added = [Difference("new", kind, name, kind, "not judged", "judged") for name in news if name not in olds]
    return both, gone + added


def problem(kind: Kind, name: str, healthy: tuple[str, str], old: Report, new: Report) -> Difference:
    """What is wrong with it as a whole; ``healthy`` has the place of that fact, and the word for nothing."""
    was, now = old["problem"], new["problem"]
    change: Change = "same" if was == now else "changed" if was and now else "regressed" if now else "improved"
    return Difference(change, kind, name, healthy[0], was or healthy[1], now or healthy[1])


def _layout(name: str, layout: str, was: Layout, now: Layout) -> Iterator[Difference]:
    for direction in DIRECTIONS:
        if direction in was and direction in now:
            yield Difference(
                _change(was[direction], now[direction]),
                "operation",
                name,
                f"{direction}, {layout}",
                was[direction],
                now[direction],
            )
    before, after = was["collectives"], now["collectives"]
    if before is not None and after is not None:
        yield from _moved(name, layout, before, after)


def _change(was: str, now: str) -> Change:
    """A layout that went wrong, or is refused now, is a regression; a refusal in other words is none. What is wrong in
    other numbers is as wrong as it was: memory that nobody wrote has others in each run."""
    if NUMBER.sub("", was) == NUMBER.sub("", now):
        return "same"
    worse = ORDER.index(now.partition(":")[0]) - ORDER.index(was.partition(":")[0])
    if worse == 0 or (worse < 0 and now.partition(":")[0] in FAULTS):
        return "changed"
    return "regressed" if worse > 0 else "improved"


def _moved(name: str, layout: str, before: list[Any], after: list[Any]) -> Iterator[Difference]:
    """Bytes by collective and axes. More in one and less in another are a regression only if all are more together."""
    olds, news = (_by_lane(entries) for entries in (before, after))
    if None in (*olds.values(), *news.values()):
        known = olds == news
        yield Difference("same" if known else "changed", "moved", name, layout, *map(_told, (olds, news)))
        return
    was, now = (sum(value for value in lanes.values() if value) for lanes in (olds, news))
    change: Change = "regressed" if now > was else "improved" if now < was else "same" if olds == news else "changed"
    yield Difference(change, "moved", name, layout, *map(_told, (olds, news)))


def _by_lane(entries: list[Any]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for entry in entries:
        lane = f"{entry['operation']} over {'×'.join(entry['axes'])}"
        known, more = found.get(lane, 0), entry["bytes"]
        found[lane] = None if known is None or more is None else known + more
    return found


def _told(lanes: Mapping[str, int | None]) -> str:
    amounts = (f"{lane}: {'unknown' if count is None else format(count, ',')} bytes" for lane, count in lanes.items())
    return ", ".join(sorted(amounts)) or "nothing"
