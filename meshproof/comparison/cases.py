"""The facts of one case in two reports: numbers, layout, communication, memory, operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from meshproof.comparison.differences import Change, Difference, Kind
from meshproof.targets import Chip, read_target

UNBOUNDED = 2.0**-12
"""Relative change of a loss that no truth bounds: 2⁻⁹, the rounding of bfloat16, in a mean of 64 values."""

SCHEDULED = 0.05
"""Relative change of temporary bytes that is not reported: they depend on the compiler's schedule."""

COUNTED = 0.01
"""Relative change of FLOPs that is not reported: they are the compiler's estimate."""

RING = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}
"""What each of n devices in a ring sends, in units of S(n−1)/n (Scaling book, "Sharded matrices"); others send S."""

OF_ITS_CHIP = 0.01
"""The share of a chip's memory by which temporary or peak bytes must grow, too, to be a regression."""

LARGER_IS_WORSE = ("state", "arguments", "outputs", "not donated")

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """One case in both reports."""

    old: Case
    new: Case

    @property
    def both(self) -> tuple[Case, Case]:
        """The old, then the new."""
        return self.old, self.new

    def tell(self, change: Change, kind: Kind, place: str, old: object, new: object, detail: str = "") -> Difference:
        """The difference of one fact of this case."""
        return Difference(change, kind, self.new["id"], place, str(old), str(new), detail)

    def presence(self, kind: Kind, place: str, was: object, now: object) -> Difference | None:
        """The difference of a fact that one report lacks; ``None`` if both have it, or neither."""
        if (was is None) == (now is None):
            return None
        change: Change = "new" if was is None else "gone"
        texts = ("not seen", "seen") if was is None else ("seen", "not seen")
        return self.tell(change, kind, place, *texts, (self.old if was is None else self.new)["problem"] or "")


def compare_case(pair: Pair) -> Iterator[Difference]:
    """Every fact of a case, unchanged ones included."""
    for compare in (_losses, _numbers, _layout, _collectives, _memory, _flops):
        yield from compare(pair)


def _losses(pair: Pair) -> Iterator[Difference]:
    old, new = (case["losses"] or None for case in pair.both)
    if absent := pair.presence("losses", "losses", old, new):
        yield absent
    elif old and new and len(old) != len(new):
        change: Change = "gone" if len(new) < len(old) else "new"
        yield pair.tell(change, "losses", "steps", len(old), len(new))
    for step, (was, now) in enumerate(zip(old or (), new or (), strict=False), start=1):
        place = f"loss of step {step}"
        if was == now:
            yield pair.tell("same", "losses", place, was, now)
        elif was is None or now is None:
            yield pair.tell("improved" if was is None else "regressed", "losses", place, *map(_finite, (was, now)))
        else:
            yield _moved(pair, place, was, now)


def _moved(pair: Pair, place: str, was: float, now: float) -> Difference:
    """A loss with other bits. Either may be one bound from the truth, so up to two bounds is no regression."""
    bound = min((case["errors"].get(f"{place}: loss", {}).get("allowed") or 0.0 for case in pair.both), default=0.0)
    if bound:
        distance = abs(now - was) / bound
        told = f"{now}, {distance:.2g} of the bound {bound:.2g} away"
        return pair.tell("regressed" if distance > 2 else "changed", "losses", place, was, told)
    relative = abs(now - was) / max(abs(was), abs(now))
    told = f"{now}, relatively {relative:.2g} away; no truth bounds it"
    return pair.tell("regressed" if relative > UNBOUNDED else "changed", "losses", place, was, told)


def _finite(value: float | None) -> str:
    return "not finite" if value is None else str(value)


def _numbers(pair: Pair) -> Iterator[Difference]:
    was, now = pair.old["digest"], pair.new["digest"]
    if absent := pair.presence("numbers", "bits after the last step", was, now):
        yield absent
    elif was is not None:
        worst = [max((leaf["margin"] or 0.0 for leaf in case["errors"].values()), default=0.0) for case in pair.both]
        bounded = all(case["errors"] for case in pair.both)
        told = "largest error over its bound {:.3g} → {:.3g}".format(*worst) if bounded else "no truth bounds them"
        change: Change = "same" if was == now else "changed"
        yield pair.tell(change, "numbers", "bits after the last step", was[:12], now[:12], told)


def _layout(pair: Pair) -> Iterator[Difference]:
    old, new = pair.old["shardings"], pair.new["shardings"]
    for path in dict.fromkeys([*old, *new]):
        was, now = old.get(path), new.get(path)
        if absent := pair.presence("layout", path, was, now):
            yield absent
            continue
        held = [prod(leaf["shard_shape"] or ()) for leaf in (was, now)]
        change: Change = "changed"
        if all(was[key] == now[key] for key in ("shape", "axes", "shard_shape")):
            change = "same"
        elif was["shape"] == now["shape"] and held[0] != held[1]:
            change = "regressed" if held[1] > held[0] else "improved"
        yield pair.tell(change, "layout", path, *map(_layout_text, (was, now)))


def _layout_text(leaf: Mapping[str, Any]) -> str:
    axes = leaf["axes"]
    over = "irregularly" if axes is None else ", ".join("×".join(names) or "–" for names in axes) or "a scalar"
    return f"{tuple(leaf['shape'])} over ({over}), {tuple(leaf['shard_shape'] or ())} on a device"


def _collectives(pair: Pair) -> Iterator[Difference]:
    mesh = (pair.old.get("mesh") or {}) | (pair.new.get("mesh") or {})
    for program, field in (("step", "collectives"), ("forward", "forward_collectives")):
        if absent := pair.presence("collectives", program, pair.old[field], pair.new[field]):
            yield absent
            continue
        old, new = (_by_operation(case[field] or ()) for case in pair.both)
        totals = [_add(_sent(entry, mesh) for entry in case[field] or ()) for case in pair.both]
        before, after = ("unknown" if total is None else f"{round(total):,}" for total in totals)
        told = f"bytes that each device sends in the whole {program}, on rings: {before} → {after}"
        for key in dict.fromkeys([*old, *new]):
            was, now = old.get(key, NOTHING), new.get(key, NOTHING)
            place = f"{program}: {key[0]} over {'×'.join(key[1])}"
            yield pair.tell(_traffic(was, now, *totals), "collectives", place, was, now, told)


@dataclass(frozen=True)
class Lane:
    """What one operation does over the same mesh axes in one program; ``None`` is unknown."""

    executions: int | None = 0
    tensors: int | None = 0
    bytes: int | None = 0
    dtypes: tuple[str, ...] = ()
    realized_as: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self == NOTHING:
            return "none"
        amounts = (
            f"{'an unknown number of' if number is None else format(number, ',')} {unit}"
            for number, unit in ((self.executions, "executions"), (self.tensors, "tensors"), (self.bytes, "bytes"))
        )
        return f"{', '.join(amounts)} of {', '.join(self.dtypes)} as {', '.join(self.realized_as)}"


NOTHING = Lane()


def _by_operation(collectives: Any) -> dict[tuple[str, tuple[str, ...]], Lane]:
    grouped: dict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for entry in collectives:
        grouped.setdefault((entry["operation"], tuple(entry["axes"])), []).append(entry)
    return {
        key: Lane(
            executions=_add(entry["executions"] for entry in entries),
            tensors=_add(entry["tensors"] for entry in entries),
            bytes=_add(entry["bytes"] for entry in entries),
            dtypes=tuple(sorted({entry["dtype"] for entry in entries})),
            realized_as=tuple(sorted({entry["realized_as"] for entry in entries})),
        )
        for key, entries in grouped.items()
    }


def _add(numbers: Iterator[Any]) -> Any:
    found = list(numbers)
    return None if None in found else sum(found)


def _sent(entry: Mapping[str, Any], mesh: Mapping[str, int]) -> Fraction | None:
    """Bytes that a device sends, exactly; for a ring of unknown size their limit as it grows."""
    if entry["bytes"] is None:
        return None
    factor = Fraction(RING.get(entry["operation"], 1))
    n = prod(mesh.get(axis, 0) for axis in entry["axes"])
    if entry["operation"] in RING and n > 1:
        factor *= Fraction(n - 1, n)
    return factor * entry["bytes"]


def _traffic(was: Lane, now: Lane, total: Fraction | None, new_total: Fraction | None) -> Change:
    """More bytes in a lane are a regression only if the device sends more in total; else they changed lanes."""
    if was == now:
        return "same"
    if None in (was.bytes, now.bytes, total, new_total):
        return "changed"
    if now.bytes > was.bytes and new_total > total:  # type: ignore[operator]
        return "regressed"
    if now.bytes < was.bytes and new_total < total:  # type: ignore[operator]
        return "improved"
    return "changed"


def _memory(pair: Pair) -> Iterator[Difference]:
    chip = read_target(pair.new["target"]).chip
    old, new = (_held(case, chip) for case in pair.both)
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if absent := pair.presence("memory", name, was, now):
            yield absent
        elif was is not None and now is not None:
            change = _bytes(name, was, now, chip)
            yield pair.tell(change, "memory", name, *(f"{number:,} bytes" for number in (was, now)))


def _bytes(name: str, was: int, now: int, chip: Chip | None) -> Change:
    if name in LARGER_IS_WORSE:
        return "same" if was == now else "regressed" if now > was else "improved"
    if near(was, now, SCHEDULED):
        return "same"
    if chip is None or abs(now - was) <= OF_ITS_CHIP * chip.memory:
        return "changed"
    return "regressed" if now > was else "improved"


def _held(case: Case, chip: Chip | None) -> dict[str, int]:
    """Bytes by kind; not donated instead of donated bytes, since a smaller state has less to donate.

    The peak is told for a chip alone: XLA:CPU's own lies below the temporary bytes.
    """
    memory = dict(case["memory"] or {})
    if chip is None:
        memory.pop("peak", None)
    if "aliased" in memory:
        memory["not donated"] = memory.get("state", 0) - memory.pop("aliased")
    return memory


def _flops(pair: Pair) -> Iterator[Difference]:
    was, now = pair.old["flops"], pair.new["flops"]
    if absent := pair.presence("flops", "step", was, now):
        yield absent
    elif was is not None:
        change: Change = "same" if near(was, now, COUNTED) else "changed"
        yield pair.tell(change, "flops", "step", *(f"{number:,.0f} FLOPs" for number in (was, now)))


def near(was: float, now: float, share: float) -> bool:
    """Whether two amounts differ by no more than this share of the larger."""
    return abs(now - was) <= share * max(abs(was), abs(now))
