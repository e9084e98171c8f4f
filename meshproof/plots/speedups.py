"""How many times as fast as a single device is each strategy?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshproof.plots.drawing import BLUE, INK, Picture, label_series, make_figure, name_panel
from meshproof.plots.reading import Material, Step

NAME, QUESTION = "speed-up", "Speed-up of each strategy over the single device"
DIFFERING = ("strategy", "mesh", "pipeline")
"""The keys in which a strategy may differ from its single device; all others are equal."""

BAR = 0.24
"""Inches."""


def find_bases(steps: Iterable[Step]) -> dict[Step, Step]:
    """The single device of each step that has exactly one; a step of unknown batch size has none."""
    alone: dict[str, list[Step]] = defaultdict(list)
    told = [step for step in steps if step.batch is not None]
    for step in told:
        if step.devices == 1:
            alone[step.key(*DIFFERING)].append(step)
    found = {step: alone[step.key(*DIFFERING)] for step in told}
    return {step: bases[0] for step, bases in found.items() if len(bases) == 1}


def speed_up(step: Step, base: Step) -> tuple[float, float, float]:
    """The single device's time over the strategy's: fast quartile over slow, medians, slow quartile over fast."""
    (fast, middle, slow), (low, median, high) = step.seconds, base.seconds
    return low / slow, median / middle, high / fast


def draw_speedups(material: Material) -> Picture:
    """A bar for each strategy and mesh, a panel for each model and batch; the whiskers are quartile over quartile."""
    bases = find_bases(material.steps)
    panels: dict[tuple[str, ...], list[Step]] = defaultdict(list)
    for step, base in bases.items():
        if step.devices > 1:
            panels[base.key(*DIFFERING), str(base.batch)].append(step)
    remarks = _left_out(material.steps, bases)
    if not panels:
        reason = remarks[0] if remarks else "there is no train step on more than one device"
        return Picture(NAME, QUESTION, None, (f"no picture of the speed-up: {reason}",))
    heights = [BAR * len(steps) for steps in panels.values()]
    figure, axes = make_figure(QUESTION, heights, 1, sources(material, panels.values()), sharex=True)
    names = _name_bases([bases[steps[0]] for steps in panels.values()])
    for panel, steps in zip(axes[:, 0], panels.values(), strict=True):
        _draw_panel(panel, sorted(steps, key=lambda step: speed_up(step, bases[step])[1]), bases)
        base = bases[steps[0]]
        taken = f"{1e3 * base.seconds[1]:.3g} ms a step"
        panel.set_title(f"{name_panel(steps)}, batch {base.batch}: over {names[base]}, {taken}")
    is_virtual = any(step.identity["platform"] == "cpu" for steps in panels.values() for step in steps)
    note = "; virtual devices share the cores of one host" if is_virtual else ""
    axes[-1, 0].set_xlabel(f"times the speed of the single device (1 is as fast{note})")
    return Picture(NAME, QUESTION, figure, tuple(remarks))


def sources(material: Material, panels: Iterable[Sequence[Step]]) -> list[str]:
    """A line for each run: its file's name, machine and versions."""
    runs = dict.fromkeys(step.run for steps in panels for step in steps)
    return [f"{run}: {material.sources[run]}" for run in runs]


def _draw_panel(panel: Any, steps: Sequence[Step], bases: Mapping[Step, Step]) -> None:
    rows, found = range(len(steps)), [speed_up(step, bases[step]) for step in steps]
    spread = [[middle - low for low, middle, _ in found], [high - middle for _, middle, high in found]]
    middles = [middle for _, middle, _ in found]
    panel.barh(rows, middles, xerr=spread, height=0.7, color=BLUE, error_kw={"ecolor": INK, "elinewidth": 1})
    for row, (_, middle, high) in enumerate(found):
        panel.annotate(
            f"{middle:.2f}×", (max(middle, high), row), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    panel.set_yticks(rows, [f"{step.strategy}  ({step.mesh})" for step in steps], fontsize=8)
    panel.set_ylim(-0.6, len(steps) - 0.4)
    panel.grid(visible=False, axis="y")
    panel.axvline(1, color=INK, linewidth=1, linestyle="--")


def _name_bases(bases: Sequence[Step]) -> dict[Step, str]:
    """The name of each single device, with what distinguishes it from others of its model and batch."""
    alike: dict[tuple[str, int | None], list[Step]] = defaultdict(list)
    for base in bases:
        alike[name_panel([base]), base.batch].append(base)
    return {
        base: name
        for group in alike.values()
        for base, name in zip(group, label_series([[base] for base in group]), strict=True)
    }


def _left_out(steps: Iterable[Step], bases: Mapping[Step, Step]) -> list[str]:
    missing = [step.name.rpartition("::")[2] for step in steps if step.devices > 1 and step not in bases]
    if not missing:
        return []
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    told = "its run has no single device, or several, with this model and batch and all else that is no strategy's"
    return [f"no speed-up of {missing[0]}{more}: {told}"]
