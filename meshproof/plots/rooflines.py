"""Roofline: what a device can do at most, against what it does for each byte that it sends.

A device sends (n − 1)/n of what an axis of n devices gathers or scatters, and all that a stage hands to the next. Where
it leaves the links it has one adapter: what devices of a host send together is counted to each of them in equal parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from matplotlib.ticker import NullLocator

from meshproof.hlo.wire import best_wire_bytes, devices_of
from meshproof.planning.advice import size
from meshproof.planning.costs import Plan, Traffic
from meshproof.planning.rooflines import intensity
from meshproof.plots.drawing import GROUPED, INK, QUIET, SMALL, Picture, make_figure, markings, scale_by_decades
from meshproof.targets import Chip, read_target

NAME, ROOFLINE = "roofline", "Roofline: FLOP/s of a device, against FLOPs for each byte that it sends"
LINKS, NETWORK = "links", "network"
TERA = 1e12
ROW, BEYOND = 0.17, 2
"""Inches of a strategy's row below the roofline; by what factor the axis goes on beyond its points."""

CASES: dict[str, Any] = {"color": QUIET, "marker": ".", "linestyle": "none"}

COUNTED = "FLOPs of cases: of their products; of one whose program does not tell, as its compiler counts: loops once"
"""Said below a picture of cases that a report has."""

Case = Mapping[str, Any]
Reports = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Point:
    """FLOPs per byte that a device sends over its links, or over the network, and FLOP/s of a device."""

    name: str
    over: str
    intensity: float
    flops: float


def points_of(plan: Plan, chip: Chip) -> Iterator[Point]:
    """A plan's own FLOPs (what is recomputed is none) over what each kind of link carries, at its predicted speed."""
    sent: dict[str, float] = defaultdict(float)
    for line in plan.traffic:
        devices = plan.layout.mesh[line.axis]
        share = 1.0 if line.axis == "pipeline" else (devices - 1) / devices
        adapters = line.way.bandwidth / chip.network_bandwidth if over(line, chip) == NETWORK else 1.0
        sent[over(line, chip)] += line.bytes * share / adapters
    own = plan.flops / plan.layout.devices
    for way, amount in sent.items():
        yield Point(plan.layout.name, way, intensity(own, amount), own / plan.seconds)


def over(line: Traffic, chip: Chip) -> str:
    """What it is sent over: adapters that together carry as much as the links are no narrower than these."""
    return NETWORK if line.way.network and line.way.bandwidth < chip.link_bandwidth else LINKS


def roofs_of(plans: Iterable[Plan], chip: Chip) -> dict[str, float]:
    """Bytes per second of each slope: one axis of links, those over which these plans lay more, and the network."""
    lines = [line for plan in plans for line in plan.traffic]
    linked = (line for line in lines if over(line, chip) == LINKS and line.axis != "pipeline")
    rates = {chip.link_bandwidth, *(line.way.bandwidth * line.way.axes for line in linked)}
    roofs = {f"{LINKS}: {size(rate)}/s": rate for rate in sorted(rates, reverse=True)}
    network = {f"{NETWORK}: {size(chip.network_bandwidth)}/s": chip.network_bandwidth}
    return roofs | (network if any(over(line, chip) == NETWORK for line in lines) else {})


def point_of(case: Case, chip: Chip, peak: float) -> Point | str:
    """What its program does on a device for each byte that collectives must send, and at most; or why there is none."""
    flops, collectives = case.get("product_flops") or case["flops"], case["collectives"]
    if flops is None or flops <= 0 or collectives is None or any(each["bytes"] is None for each in collectives):
        return "its FLOPs or its bytes are not known"
    total = seconds = 0.0
    try:
        target = read_target(case["target"])
        if target.chip and target.chip.name != chip.name:
            return f"it was compiled for {target.chip.name}"
        for each in collectives:
            sent = best_wire_bytes(each["operation"], each["bytes"], devices_of(each["axes"], case["mesh"]))
            of_target = target.chip and target.bandwidth(each["operation"], each["axes"], case["mesh"])
            total, seconds = total + sent, seconds + sent / (of_target or chip.link_bandwidth)
        if total:
            return Point(case["strategy"], LINKS, intensity(flops, total), min(peak, flops / seconds))
    except (KeyError, ValueError, OverflowError) as error:
        return f"its collectives cannot be read: {error}"
    return "it sends nothing"


def placed(reports: Reports, chip: Chip, peak: float) -> tuple[list[Point], list[str]]:
    """The cases of these reports as points, and remarks on those that are none."""
    points, others = [], defaultdict(list)
    for source, report in reports:
        for case in report["cases"]:
            point = point_of(case, chip, peak)
            if isinstance(point, Point):
                points.append(point)
            else:
                others[source, point].append(case["id"])
    return points, [
        f"no point of {ids[0]}{f' and {len(ids) - 1} more' if ids[1:] else ''} in {source}: {reason}"
        for (source, reason), ids in others.items()
    ]


def draw_reported(reports: Reports, sources: Mapping[str, str]) -> Iterator[Picture]:
    """Without a plan: a roofline of each chip that cases were compiled for, or a remark that a plan would tell one."""
    if not reports:
        return
    chips = {chip.name: chip for _, report in reports for case in report["cases"] if (chip := chip_of(case))}
    below = [*(f"{source}: {sources[source]}" for source, _ in reports), COUNTED]
    for name, chip in chips.items():
        picture = draw_roofline(chip, chip.flops, [], reports, [f"on {name}", *below])
        yield replace(picture, name=f"{NAME}-{name}") if len(chips) > 1 else picture
    if not chips:
        told = (
            "no roofline: no case was compiled for a chip; beside a plan (`meshproof plan … --json`) it has the plan's"
        )
        yield Picture(NAME, ROOFLINE, None, (told,))


def chip_of(case: Case) -> Chip | None:
    """What a case was compiled for; ``None`` on this machine, and for a target that is not known here."""
    try:
        return read_target(case["target"]).chip
    except ValueError:
        return None


def draw_roofline(chip: Chip, peak: float, plans: Sequence[Plan], reports: Reports, below: Sequence[str]) -> Picture:
    """The roofs of a chip, plans as points at their predicted speed, and below it cases by strategy.

    A case is on the roof: it is drawn where it could be at most. ``peak`` are FLOP/s of a device, ``below`` lines under
    the picture.
    """
    cases, remarks = placed(reports, chip, peak)
    points = [point for plan in plans for point in points_of(plan, chip)]
    if not points and not cases:
        reason = remarks or ["one device sends nothing"]
        return Picture(NAME, ROOFLINE, None, tuple(f"no roofline: {each}" for each in reason))
    names = sorted({point.name for point in cases}, reverse=True)
    heights = [3.6, *([ROW * len(names)] if names else [])]
    figure, axes = make_figure(ROOFLINE, heights, 1, below, sharex=True)
    panel = axes[0, 0]
    _draw_roofs(panel, roofs_of(plans, chip), peak, [*points, *cases])
    _draw_plans(panel, points)
    if cases:
        drawn = list(dict.fromkeys(cases))
        across = [case.intensity for case in drawn]
        panel.plot(across, [case.flops / TERA for case in drawn], **CASES, label=f"a case, at most ({len(cases)})")
        _draw_names(axes[1, 0], across, [case.name for case in drawn], names)
    panel.set_ylim(min(point.flops for point in (*points, *cases)) / BEYOND / TERA, 1.3 * peak / TERA)
    scale_by_decades(panel.yaxis)
    panel.set_ylabel("TFLOP/s of a device")
    hollow = " (full: over links, hollow: over the network)" if any(each.over == NETWORK for each in points) else ""
    axes[-1, 0].set_xlabel(f"FLOPs of a device for each byte that it sends{hollow}")
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8)
    return Picture(NAME, ROOFLINE, figure, tuple(remarks))


def _draw_roofs(panel: Any, roofs: Mapping[str, float], peak: float, points: Sequence[Point]) -> None:
    """Each slope up to where it meets the peak, which is where products take as long as what is sent."""
    ridges = [intensity(peak, rate) for rate in roofs.values()]
    across = [*(point.intensity for point in points), *ridges]
    low, high = min(across) / BEYOND, max(across) * BEYOND
    for (name, rate), style in zip(roofs.items(), cycle(("-", "--", "-.", ":")), strict=False):
        ridge = intensity(peak, rate)
        panel.plot([low, ridge], [rate * low / TERA, peak / TERA], color=INK, linewidth=1, linestyle=style, label=name)
        panel.annotate(f"{ridge:,.0f}", (ridge, peak / TERA), (0, 4), ha="center", **SMALL)
    told = f"products: {peak / TERA:,.0f} TFLOP/s"
    panel.plot([min(ridges), high], [peak / TERA] * 2, color=INK, linewidth=2, label=told)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.xaxis.set_major_formatter(GROUPED)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlim(low, high)


def _draw_plans(panel: Any, points: Sequence[Point]) -> None:
    """Full over links, hollow over the network; a line joins both of a plan. Those at one place share a marker."""
    alike: dict[tuple[Point, ...], list[str]] = defaultdict(list)
    for name in dict.fromkeys(point.name for point in points):
        alike[tuple(replace(each, name="") for each in points if each.name == name)].append(name)
    for (own, names), marking in zip(alike.items(), markings(), strict=False):
        across, up = [each.intensity for each in own], [each.flops / TERA for each in own]
        hollow = [number for number, each in enumerate(own) if each.over == NETWORK]
        panel.plot(across, up, linewidth=0.7, label="\n".join(names), **marking)
        if hollow:
            panel.plot(across, up, linestyle="none", markerfacecolor="white", markevery=hollow, **marking)


def _draw_names(panel: Any, across: Sequence[float], own: Sequence[str], names: Sequence[str]) -> None:
    rows = {name: row for row, name in enumerate(names)}
    panel.plot(across, [rows[name] for name in own], **CASES)
    panel.set_yticks(range(len(names)), names, fontsize=7.5)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    panel.set_ylim(-0.7, len(names) - 0.3)
