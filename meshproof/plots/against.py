"""How do time and model FLOPs utilisation (MFU) depend on batch and mesh?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import PercentFormatter

from meshproof.plots.drawing import (
    ADVICE,
    QUIET,
    Picture,
    label_series,
    make_figure,
    markings,
    name_panel,
    scale_by_decades,
)
from meshproof.plots.reading import Material, Step
from meshproof.plots.speedups import find_bases, sources

Series = list[Step]


@dataclass(frozen=True)
class Question:
    """What varies: its key in the identity, and a function from a step to its value (``None``: unknown)."""

    name: str
    varies: str
    of: Callable[[Step], Any]

    def text(self, has_mfu: bool = True) -> str:
        """The picture's title."""
        return f"Time of a train step{' and MFU' if has_mfu else ''} against {self.name}"


BATCH = Question("batch", "batch_size", lambda step: step.batch)
MESH = Question("mesh", "mesh", lambda step: (step.devices, step.mesh))


def find_series(steps: Sequence[Step], question: Question) -> list[Series]:
    """Series of at least two steps that are equal but for what varies, in its order, no two with the same value."""
    alike: dict[str, Series] = defaultdict(list)
    for step in steps:
        if question.of(step) is not None:
            alike[step.key(question.varies)].append(step)
    places = {key: {question.of(step) for step in series} for key, series in alike.items()}
    return [sorted(series, key=question.of) for key, series in alike.items() if 1 < len(places[key]) == len(series)]


def draw_against(material: Material, question: Question) -> Picture:
    """A row for each model (and for each batch, against mesh): the time, and beside it MFU if any is known."""
    series = find_series(material.steps, question)
    if not series:
        reason = f"no two train steps differ in their {question.name} alone; {ADVICE}"
        return Picture(question.name, question.text(), None, (f"no picture against {question.name}: {reason}",))
    rows: dict[str, list[Series]] = defaultdict(list)
    for own in series:
        batch = f", batch {own[0].batch}" if question is MESH and own[0].batch else ""
        rows[name_panel(own) + batch].append(own)
    has_mfu = any(step.mfu is not None for own in series for step in own)
    heading, remarks = question.text(has_mfu), _unknown(series, question)
    below = [*sources(material, series), *remarks]
    figure, axes = make_figure(heading, [2.6] * len(rows), 1 + has_mfu, below)
    bases = find_bases(material.steps) if question is MESH else {}
    for panels, (title, beside) in zip(axes, rows.items(), strict=True):
        _draw_row(panels, beside, question, bases)
        panels[0].set_title(title)
    return Picture(question.name, heading, figure, tuple(remarks))


def _draw_row(panels: Sequence[Any], series: Sequence[Series], question: Question, bases: Mapping[Step, Step]) -> None:
    time, *rates = panels
    places = sorted({question.of(step) for own in series for step in own})
    at = {place: place if question is BATCH else number for number, place in enumerate(places)}
    for own, label, marking in zip(series, label_series(series, question.varies), markings(), strict=False):
        across = [at[question.of(step)] for step in own]
        low, middle, high = zip(*([1e3 * part for part in step.seconds] for step in own), strict=True)
        spread = [[m - q for m, q in zip(middle, low, strict=True)], [q - m for m, q in zip(middle, high, strict=True)]]
        time.errorbar(across, middle, yerr=spread, label=label, capsize=2, **marking)
        for panel in rates:
            found = [float("nan") if step.mfu is None else step.mfu for step in own]
            panel.plot(across, found, label=label, **marking)
    alone = dict.fromkeys(bases[step] for own in series for step in own if step in bases and step.devices > 1)
    for base, label in zip(alone, label_series([[base] for base in alone]), strict=True):
        time.axhline(1e3 * base.seconds[1], color=QUIET, linestyle="--", label=f"{label} (1 device)")
    time.set_ylabel("milliseconds a step")
    for panel in rates:
        panel.set_ylabel("MFU, % of the devices' peak")
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    for panel in panels:
        _scale(panel, question, places)
    panels[-1].legend(*time.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(1.01, 1))


def _scale(panel: Any, question: Question, places: Sequence[Any]) -> None:
    if question is MESH:
        names = [f"{mesh.replace(', ', chr(10))}\n({devices})" for devices, mesh in places]
        panel.set_xticks(range(len(places)), names, fontsize=8)
        panel.set_xlabel("mesh (devices)")
        panel.set_ylim(0, 1.08 * panel.dataLim.y1)
        return
    panel.set_xscale("log", base=2)
    panel.set_xticks(places, [f"{place:,}" for place in places])
    panel.minorticks_off()
    panel.set_xlabel("batch (examples a step)")
    if panel.get_ylabel().startswith("milliseconds"):
        panel.set_yscale("log")
        scale_by_decades(panel.yaxis)
    else:
        panel.set_ylim(0, 1.08 * panel.dataLim.y1)


def _unknown(series: Sequence[Series], question: Question) -> list[str]:
    """A remark on utilisations that are unknown."""
    steps = [step for own in series for step in own]
    unknown = [step for step in steps if step.mfu is None]
    if not unknown:
        return []
    kinds = dict.fromkeys(f"{step.identity['device_kind']} in {step.identity['dtype']}" for step in unknown)
    reason = f"it is null, for the peak of {', '.join(kinds)} or the model FLOPs are not known"
    return [f"no MFU against {question.name} of {len(unknown)} of {len(steps)} steps: {reason}"]
