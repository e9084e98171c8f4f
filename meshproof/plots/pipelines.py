"""How busy are pipelines? Measured efficiency against microbatches, beside that of the schedule.

T(M) is the time of a step of M microbatches of one size. The slope of T, by least squares over all M, is the time of
one more microbatch in the steady state, without bubble. The measured efficiency is M·slope / T(M): the share of a step
that is not warm-up, cool-down or anything else that does not grow with M. If all ticks take the same time,
T(M) = (V·M + S − 1)·tick, and this is exactly 1 − bubble. The measurement uses no theory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import linear_regression
from typing import Any

from matplotlib.ticker import PercentFormatter

from meshproof.planning.pipelining import bubble
from meshproof.plots.drawing import ADVICE, QUIET, Picture, label_series, make_figure, markings, name_panel
from meshproof.plots.reading import Material, Step
from meshproof.plots.speedups import sources

NAME, QUESTION = "pipelines", "Efficiency of pipelines against microbatches"
MEASURED = "measured: M × (what one more microbatch takes, the slope of T) / T(M), where T(M) is the time of a step"

Series = list[Step]


def find_series(steps: Sequence[Step]) -> list[Series]:
    """Series of pipeline steps that differ only in M, with microbatches of one size, for at least two values of M."""
    alike: dict[str, Series] = defaultdict(list)
    for step in steps:
        counts = step.identity.get("pipeline")
        if counts and step.batch is not None:
            size = step.batch / counts["microbatches"]
            shape = f"{counts['stages']} {counts['chunks']} {size}"
            alike[step.key("pipeline", "batch_size") + shape].append(step)
    return [
        sorted(series, key=microbatches)
        for series in alike.values()
        if 1 < len(set(map(microbatches, series))) == len(series)
    ]


def microbatches(step: Step) -> int:
    """The number of microbatches of a pipeline's step."""
    return int(step.identity["pipeline"]["microbatches"])


def efficiencies(series: Series) -> list[float] | None:
    """M·slope / T(M) for each step; ``None`` if time does not grow with M."""
    counts, seconds = list(map(microbatches, series)), [step.seconds[1] for step in series]
    slope = linear_regression(counts, seconds).slope
    if slope <= 0:
        return None
    return [count * slope / taken for count, taken in zip(counts, seconds, strict=True)]


def draw_pipelines(material: Material) -> Picture:
    """A panel for each model: each pipeline's efficiency, and a dashed line of theory for each shape of schedule."""
    series = find_series(material.steps)
    growing = [(own, found) for own in series if (found := efficiencies(own))]
    remarks = [
        f"no efficiency of {own[0].strategy} ({own[0].mesh}): its time does not grow with its microbatches"
        for own in series
        if not efficiencies(own)
    ]
    if not growing:
        reason = (
            remarks[0] if remarks else f"no two pipelines differ in the number of like microbatches alone; {ADVICE}"
        )
        return Picture(NAME, QUESTION, None, (f"no picture of the pipelines: {reason}",))
    rows: dict[str, list[tuple[Series, list[float]]]] = defaultdict(list)
    for own, found in growing:
        rows[str(own[0].identity["model"])].append((own, found))
    below = [*sources(material, [own for own, _ in growing]), MEASURED]
    figure, axes = make_figure(QUESTION, [3.0] * len(rows), 1, below)
    for panel, drawn in zip(axes[:, 0], rows.values(), strict=True):
        _draw_panel(panel, drawn)
    return Picture(NAME, QUESTION, figure, tuple(remarks))


def _draw_panel(panel: Any, drawn: Sequence[tuple[Series, list[float]]]) -> None:
    series = [own for own, _ in drawn]
    counts = sorted({microbatches(step) for own in series for step in own})
    pipelines = [own[0].identity["pipeline"] for own in series]
    shapes = {(each["stages"], each["chunks"], each.get("has_weights", False)) for each in pipelines}
    for shape in sorted(shapes):
        _draw_theory(panel, *shape, range(counts[0], counts[-1] + 1))
    labels = label_series(series, "pipeline", "batch_size")
    for (own, found), label, marking in zip(drawn, labels, markings(), strict=False):
        panel.plot(list(map(microbatches, own)), found, label=label, **marking)
    panel.set_title(name_panel(step for own in series for step in own))
    panel.set_xscale("log", base=2)
    panel.set_xticks(counts, list(map(str, counts)))
    panel.minorticks_off()
    panel.set_xlabel("M, microbatches of one size in a step")
    panel.set_ylabel("efficiency (time without bubble / time)")
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set_ylim(0, max(1.05, *(1.05 * most for _, found in drawn for most in found)))
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1))


def _draw_theory(panel: Any, stages: int, chunks: int, has_weights: bool, counts: Sequence[int]) -> None:
    times = chunks * (3 if has_weights else 1)
    promised = [1 - bubble(stages, count, chunks, has_weights) for count in counts]
    label = f"theory, S={stages}: 1 − {stages - 1}/({times if times > 1 else ''}M + {stages - 1})"
    panel.plot(counts, promised, color=QUIET, linestyle="--" if times == 1 else ":", label=label)
