"""Does every strategy follow the truth? Loss curves by model, and how far each strategy is from the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from matplotlib.ticker import MaxNLocator

from meshproof.plots.drawing import BLUE, BOX, PALE, PLAIN, PURPLE, QUIET, RED, Picture, make_figure
from meshproof.plots.reading import Material

NAME, QUESTION = "losses", "Loss of every strategy beside the truth"

Case = Mapping[str, Any]
UNKNOWN = float("nan")
NAMED = 4
"""The most curves outside their bounds that are labelled on the left; the right panel has every strategy."""

ABOVE: Any = {"xytext": (0, 6), "textcoords": "offset points", "bbox": BOX}


def margins(case: Case) -> list[float]:
    """The margin of each judged loss: its distance from the truth over its bound."""
    found = (error["margin"] for name, error in case["errors"].items() if name.startswith("loss of step "))
    return [_number(margin) for margin in found if margin is not None]


def draw_losses(material: Material) -> Picture:
    """A row for each model: on the left the curves of all cases over those of the truth, on the right each strategy."""
    rows: dict[str, list[Case]] = defaultdict(list)
    remarks = []
    for source, report in material.reports:
        suffix = f" ({source})" if len(material.reports) > 1 else ""
        without = []
        for case in report["cases"]:
            if case["losses"] and case["expected_losses"]:
                rows[case["model"] + suffix].append(case)
            else:
                without.append(case["id"])
        if without:
            more = f" and {len(without) - 1} more" if len(without) > 1 else ""
            remarks.append(f"no loss curve of {without[0]}{more} in {source}: it has no losses, or no truth says them")
    if not rows:
        reason = remarks[0] if remarks else "there is no conformance report with losses among the files"
        return Picture(NAME, QUESTION, None, (f"no picture of the losses: {reason}",))
    heights = [max(1.6, 0.2 * len(_strategies(cases))) for cases in rows.values()]
    sources = [f"{name}: {material.sources[name]}" for name, _ in material.reports]
    figure, axes = make_figure(QUESTION, heights, 2, sources)
    for (curves, distances), (model, cases) in zip(axes, rows.items(), strict=True):
        _draw_curves(curves, cases)
        curves.set_title(model)
        _draw_distances(distances, _strategies(cases))
    axes[0, 1].set_title("distance from the truth / what is allowed")
    axes[-1, 0].set_xlabel("train step")
    axes[-1, 1].set_xlabel("worst step of each case; 1 is the bound")
    return Picture(NAME, QUESTION, figure, tuple(remarks))


def _strategies(cases: Sequence[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        found[case["strategy"]].append(case)
    return found


def _draw_curves(panel: Any, cases: Sequence[Case]) -> None:
    for truth in dict.fromkeys(tuple(case["expected_losses"]) for case in cases):
        panel.plot(*_points(truth), color=PALE, linewidth=7, solid_capstyle="round", label="truth (float64)", zorder=1)
    named = 0
    for case in cases:
        worst = max(margins(case), default=UNKNOWN)
        is_far = worst > 1 or None in case["losses"]
        is_near = worst <= 1 and not is_far
        label = "within the bound" if is_near else "outside the bound" if is_far else "judged by no bound"
        colour = BLUE if is_near else RED if is_far else PURPLE
        across, losses = _points(case["losses"])
        panel.plot(across, losses, "o-", color=colour, linewidth=1.2, markersize=3.5, label=label, gid=case["id"])
        shown = [point for point in zip(across, losses, strict=True) if isfinite(point[1])]
        if is_far and shown and named < NAMED:
            panel.annotate(case["id"], shown[-1], ha="right", va="bottom", fontsize=7, color=RED, **ABOVE)
            named += 1
    lines = panel.get_lines()
    counts = {line.get_label(): sum(other.get_label() == line.get_label() for other in lines) for line in lines}
    handles = {line.get_label(): line for line in lines}
    names = [name if name.startswith("truth") else f"{name}: {_cases(count)}" for name, count in counts.items()]
    panel.legend([handles[name] for name in counts], names, fontsize=8)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_ylabel("loss")


def _draw_distances(panel: Any, strategies: Mapping[str, list[Case]]) -> None:
    names = list(strategies)[::-1]
    furthest = 1.0
    for row, name in enumerate(names):
        found = [max(margins(case)) for case in strategies[name] if margins(case)]
        furthest = max([furthest, *found])
        colours = [RED if margin > 1 else BLUE for margin in found]
        panel.scatter(found, [row] * len(found), s=16, c=colours, alpha=0.7, linewidths=0)
    panel.axvline(1, color=QUIET, linestyle="--")
    if furthest > 2:
        panel.set_xscale("symlog", linthresh=1)
        panel.xaxis.set_major_formatter(PLAIN)
    panel.set_xlim(-0.03, 1.2 * furthest)
    panel.set_ylim(-0.7, len(names) - 0.3)
    panel.set_yticks(range(len(names)), names, fontsize=8)


def _points(losses: Sequence[float | None]) -> tuple[list[int], list[float]]:
    """Step numbers from 1, and losses; NaN for a loss that is no number, which interrupts the line."""
    return list(range(1, len(losses) + 1)), [UNKNOWN if loss is None else _number(loss) for loss in losses]


def _number(value: float) -> float:
    """The loss as a float; NaN if it is missing or too large for one."""
    try:
        return float(value)
    except OverflowError:
        return UNKNOWN


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"
