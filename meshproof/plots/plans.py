"""Pictures of a plan: what each stage of ZeRO holds, when a batch hides what moves, and a step against chips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from matplotlib import rc_context

from meshproof.planning.advice import size
from meshproof.planning.costs import Plan
from meshproof.planning.document import Planned
from meshproof.planning.layouts import BY_DATA, Layout, divisors, splits_tensors
from meshproof.planning.models import PlanError
from meshproof.planning.printing import SHOWN
from meshproof.planning.search import Question, by_strategy, reckon
from meshproof.plots.drawing import (
    BOX,
    COLOURS,
    GROUPED,
    INK,
    PLAIN,
    QUIET,
    RED,
    SMALL,
    STYLE,
    Picture,
    make_figure,
    markings,
    scale_by_decades,
)
from meshproof.plots.rooflines import COUNTED, Reports, draw_roofline

LADDER, REGIMES, CHIPS = (
    "What a device holds, from data parallelism to FSDP",
    "Products over communication, against the batch",
    "Seconds of a step, against chips",
)
SPREAD, POINTS = 32, 41
"""The batches of a picture: from a 32nd of the asked one to 32 times it."""

OCTAVES = (-3, 4)
"""The chips of a picture: from an eighth of those asked for to 16 times as many."""

GB = 1e9


def draw_plan(planned: Planned, reports: Reports = ()) -> list[Picture]:
    """A picture for each question, or a remark why there is none. The cases of reports are on the roofline."""
    question, below = planned.question, [source(planned.question), *([COUNTED] if reports else [])]
    fastest = list(by_strategy(list(planned.plans)).values())[:SHOWN]
    with rc_context(STYLE):
        return [
            draw_ladder(planned),
            draw_regimes(question),
            draw_chips(question),
            draw_roofline(question.chip, question.reached, fastest, reports, below),
        ]


def draw_ladder(planned: Planned) -> Picture:
    """A bar for each stage of ZeRO over all devices, its terms beside each other; lines at a device's memory.

    If the batch does not split, of one microbatch of as many tokens as a device would have, with layers recomputed.
    """
    question, devices = planned.question, planned.question.devices
    if devices == 1:
        return Picture("ladder", LADDER, None, ("no ladder: one device has nothing to split",))
    held = [
        (plan or question.plan(Layout(zero, data=devices, recomputes=question.model.is_stack))).memory
        for zero, plan in enumerate(planned.ladder.values())
    ]
    figure, axes = make_figure(LADDER, [2.2], 1, [source(question)])
    panel, rows = axes[0, 0], range(len(BY_DATA))
    left = [0.0] * len(BY_DATA)
    for name, colour in zip(held[0].__dataclass_fields__, COLOURS, strict=False):
        widths = [(getattr(each, name) or 0.0) / GB for each in held]
        panel.barh(rows, widths, left=left, height=0.7, color=colour, label=name.replace("_", " "))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for row, total in zip(rows, left, strict=True):
        panel.annotate(size(total * GB), (total, row), (4, 0), **SMALL, va="center", bbox=BOX)
    panel.axvline(question.chip.memory / GB, color=INK, linewidth=1.2, label="memory of a device")
    panel.axvline(question.usable / GB, color=INK, linewidth=1, linestyle="--", label="of it a plan may take")
    panel.set_yticks(rows, BY_DATA)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.15 * max(*left, question.chip.memory / GB))
    panel.xaxis.set_major_formatter(GROUPED)
    panel.set_xlabel("GB on the fullest device")
    panel.grid(visible=False, axis="y")
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    remark = () if planned.ladder["FSDP"] else (f"{devices:,} devices do not divide the batch: drawn as if they did",)
    return Picture("ladder", LADDER, figure, remark)


def draw_regimes(question: Question) -> Picture:
    """T_math / T_comms of FSDP, of tensors, and of the best of both, with what hides what: above 1 products do.

    As the plan reckons them, in one microbatch and whether or not it fits.
    """
    model, devices = question.model, question.devices
    if not model.is_stack or devices == 1:
        reason = "one device" if devices == 1 else "no layers were given"
        return Picture("regimes", REGIMES, None, (f"no regimes: {reason}",))
    shards = [count for count in divisors(devices)[1:-1] if splits_tensors(model, count)]
    series: dict[str, Callable[[Question], float]] = {"FSDP": lambda asked: ratio(asked, Layout(3, data=devices))}
    if splits_tensors(model, devices):
        series["tensor parallel"] = lambda asked: ratio(asked, Layout(tensor=devices))
    if shards:
        series["FSDP + tensor parallel"] = lambda asked: max(
            ratio(asked, Layout(3, data=devices // count, tensor=count)) for count in shards
        )
    batches = [question.batch * SPREAD ** (2 * step / (POINTS - 1) - 1) for step in range(POINTS)]
    figure, axes = make_figure(REGIMES, [3.4], 1, [source(question)])
    panel = axes[0, 0]
    free = replace(question, model=replace(model, length=0), batch=1)
    for (name, reckoned), marking in zip(series.items(), markings(), strict=False):
        found = [reckoned(replace(free, batch=max(1, int(batch)))) for batch in batches]
        panel.plot(batches, found, label=name, color=marking["color"])
    panel.axhline(1, color=INK, linewidth=1, linestyle="--")
    panel.axvline(question.batch, color=QUIET, linewidth=1, label="the batch that was asked for")
    panel.axhspan(panel.get_ylim()[0], 1, color=RED, alpha=0.06)
    for text, height in (("products hide what moves", 4), ("chips wait for links", -12)):
        panel.annotate(text, (0.99, 1), (0, height), xycoords=("axes fraction", "data"), ha="right", **SMALL)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.xaxis.set_major_formatter(GROUPED)
    panel.yaxis.set_major_formatter(PLAIN)
    panel.set_xlabel(f"{model.unit}s of a step")
    panel.set_ylabel("seconds of products / of communication")
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    remark = "each batch as one microbatch, nothing recomputed, no scores of attention, whether or not it fits"
    return Picture("regimes", REGIMES, figure, (f"{remark}: tables have what a plan does",))


def ratio(question: Question, layout: Layout) -> float:
    """T_math / T_comms of a layout."""
    return question.plan(layout).times.ratio


def draw_chips(question: Question) -> Picture:
    """The best plan on each number of chips that has one, and what it would be if each chip did as much as today's."""
    found = list(steps(question))
    if len(found) < 2:
        return Picture("chips", CHIPS, None, ("no step against chips: this batch fits on no two numbers of them",))
    figure, axes = make_figure(CHIPS, [3.2], 1, [source(question)])
    panel = axes[0, 0]
    chips, plans = [count for count, _ in found], [plan for _, plan in found]
    seconds = [plan.seconds for plan in plans]
    work = next((count * plan.seconds for count, plan in found if count == question.chips), chips[0] * seconds[0])
    ideal = [work / count for count in chips]
    panel.plot(chips, seconds, label="the best plan", **next(iter(markings())))
    panel.plot(chips, ideal, color=INK, linestyle="--", linewidth=1, label="ideal, from what was asked")
    for count, plan in found:
        panel.annotate(f"{plan.mfu:.0%}", (count, plan.seconds), (3, 6), **SMALL)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(chips, [f"{count:,}" for count in chips])
    panel.minorticks_off()
    scale_by_decades(panel.yaxis)
    panel.set_xlabel(f"chips ({question.chip.name}); beside each point its MFU")
    panel.set_ylabel("seconds of a step")
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    remark = "; ".join(f"{count:,}: {plan.layout.name} ({plan.layout.spelled})" for count, plan in found)
    return Picture("chips", CHIPS, figure, (remark,))


def steps(question: Question) -> Iterator[tuple[int, Plan]]:
    """The best plan on each doubling of chips that fits."""
    low, high = OCTAVES
    for octave in range(low, high + 1):
        chips = question.chips * 2**octave
        if chips < 1 or chips != int(chips):
            continue
        asked = replace(question, chips=int(chips))
        try:
            best = reckon(asked)[0]
        except PlanError:
            continue
        if asked.fits(best):
            yield asked.chips, best


def source(question: Question) -> str:
    """The line below a picture."""
    return (
        f"{question.model.name}, {question.batch:,} {question.model.unit}s a step, {question.precision.name}, on "
        f"{question.chips:,} × {question.chip.name}; by formulas (docs/planning.md)"
    )
