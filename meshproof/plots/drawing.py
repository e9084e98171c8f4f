"""The style of pictures, and their files. Colours are Okabe and Ito's (2008), which the colour-blind tell apart.

pyplot is not used: figures have no global state, and matplotlib's settings are restored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from math import isfinite
from typing import Any

from matplotlib import rc_context
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from meshproof.plots.reading import Step

BLUE, RED, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
COLOURS, MARKERS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, "#000000"), "osD^vPX*"
"""7 colours and 8 markers: 56 pairs before one repeats."""

INK, QUIET, PALE = "#1d1f22", "#5d636b", "#c9cdd2"

PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
"""Plain numbers, not powers of ten, on logarithmic axes."""

GROUPED = FuncFormatter(lambda value, _: f"{value:,.9g}")
"""Plain numbers, with commas."""

BOX: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
"""Behind words that lines may cross."""

SMALL: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": QUIET}
"""Of annotations beside points."""

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8eb",
    "legend.frameon": False,
    "lines.markersize": 5,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
}
"""Text is never read as a formula. Artists take settings when they are made: draw within ``rc_context(STYLE)``."""

ADVICE = "`pytest benchmarks/test_step_time.py --size sweep` times some"
"""The colour of series that were not measured."""

WIDTH, OUTSIDE, BETWEEN = 9.5, 0.9, 0.4
"""Inches: the width of a picture, the space above and below its panels, and that of a panel's title and ticks."""


@dataclass(frozen=True)
class Picture:
    """The answer to a question: a figure (``None``: nothing to draw), and remarks on what is left out and why."""

    name: str
    question: str
    figure: Figure | None
    remarks: tuple[str, ...] = ()


def make_figure(question: str, heights: Sequence[float], columns: int, sources: Iterable[str], **layout: Any) -> Any:
    """A figure with a row of panels for each height in inches, and its panels as an array (rows, columns).

    ``sources`` are lines below them that name the runs.
    """
    figure = Figure(figsize=(WIDTH, OUTSIDE + sum(heights) + BETWEEN * len(heights)), layout="constrained")
    figure.suptitle(question, x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.supxlabel("\n".join(sources), x=0.01, ha="left", fontsize=7.5, color=QUIET)
    return figure, figure.subplots(len(heights), columns, squeeze=False, height_ratios=list(heights), **layout)


def markings() -> Iterable[dict[str, Any]]:
    """Colour and marker of successive series."""
    return ({"color": colour, "marker": marker} for colour, marker in zip(cycle(COLOURS), cycle(MARKERS), strict=False))


FEW = 300
"""As many times the lowest value are few decades."""


def scale_by_decades(axis: Any) -> None:
    """Of a logarithmic axis: ticks at each decade, and at 2 and 5 of it if there are few, as plain numbers."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < FEW * low else (1,)))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


def render(picture: Picture, kind: str) -> bytes:
    """The figure as ``svg`` or ``png``, the same bytes each time, with its numbers as JSON for a description."""
    stream = BytesIO()
    metadata = {"Date": None, "Creator": "meshproof plots"} if kind == "svg" else {"Software": "meshproof plots"}
    with rc_context(STYLE | {"svg.hashsalt": picture.name}):
        if picture.figure is None:
            raise ValueError(f"there is no picture of {picture.name}: {'; '.join(picture.remarks)}")
        told = json.dumps(numbers(picture.figure), allow_nan=False)
        picture.figure.savefig(stream, format=kind, metadata=metadata | {"Description": told})
    return stream.getvalue()


def numbers(figure: Figure) -> dict[str, Any]:
    """What a figure says and draws, as JSON has it.

    Of each panel the points of lines and dots, the lengths of bars, and its words; ``None`` for a gap in a line.
    """
    words = {"title": figure.get_suptitle(), "below": figure.get_supxlabel()}
    return words | {"panels": [_drawn(panel) for panel in figure.axes]}


def _drawn(panel: Any) -> dict[str, Any]:
    bars = [each for each in panel.containers if isinstance(each, BarContainer)]
    return {
        "lines": [[line.get_label(), *map(_finite, line.get_data())] for line in panel.get_lines()],
        "dots": [_finite(dots.get_offsets().ravel()) for dots in panel.collections if len(dots.get_offsets())],
        "bars": [[each.get_label(), _finite(bar.get_width() for bar in each.patches)] for each in bars],
        "words": [text.get_text() for text in panel.texts],
        "axes": [panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()],
    }


def _finite(values: Iterable[Any]) -> list[float | None]:
    return [number if isfinite(number := float(value)) else None for value in values]


def label_series(series: Sequence[Sequence[Step]], *but: str) -> list[str]:
    """A name for each series: its strategy, and how it differs from the others in the panel."""
    facts = [_flat(own[0]) for own in series]
    telling = [
        name
        for name in dict.fromkeys(name for each in facts for name in each)
        if name not in (*but, "strategy") and len({each.get(name) for each in facts}) > 1
    ]
    return [
        ", ".join([own[0].strategy, *filter(None, (each.get(name) for name in telling))])
        for own, each in zip(series, facts, strict=True)
    ]


def name_panel(steps: Iterable[Step]) -> str:
    """The model of a panel's steps."""
    return ", ".join(dict.fromkeys(str(step.identity["model"]) for step in steps))


def _flat(step: Step) -> dict[str, str]:
    """What a step ran, as words."""
    known = step.known() | {"mesh": step.mesh, "batch_size": f"batch {step.batch}"}
    pipeline = known.pop("pipeline", None) or {}
    versions = known.pop("stack")
    known |= {"chunks": f"{pipeline.get('chunks', 1)} chunks a stage", "jax": f"jax {versions.get('jax')}"}
    return {name: str(value) for name, value in known.items() if value not in (None, "")}
