"""A plan in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshproof.planning.advice import duration, size
from meshproof.planning.reading import in_words

SHOWN = 10
"""Strategies in a table; JSON has all."""

WIDTH = 200
UNKNOWN = "–"


def write(told: Mapping[str, Any], say: Callable[[str], object]) -> None:
    """What `document` made of a plan: memory by term, times, the best meshes, what more would buy, the way there."""
    hardware, model = told["hardware"], told["model"]
    many = "" if hardware["chips"] == hardware["devices"] else f" ({hardware['devices']:,} devices)"
    say(
        f"{model['name']}: {model['parameters']:.4g} parameters, {told['batch']:,} {model['unit']}s a step, "
        f"{told['precision']}, on {hardware['chips']:,} × {hardware['chip']}{many}"
    )
    if read := told.get("read"):
        kept = f", {read['optimizer']}" if read["optimizer"] else ""
        several = f"; {read['models']} models have this in a case's name" if read["models"] > 1 else ""
        of = f"{in_words(read['sizes'])}, {read['batch']:,} {model['unit']}s a step{kept}{several}"
        say(f"read of {read['case']}: {of}")
    say(f"a device: {of_device(hardware)}")
    shown = list(told["strategies"][:SHOWN])
    ladder = [plan or {"strategy": name} for name, plan in told["ladder"].items()] if hardware["devices"] > 1 else []
    names = [plan["strategy"] for plan in ladder]
    rows = [*ladder, *(plan for plan in shown if plan["strategy"] not in names)]
    say("\nMemory of a device, by strategy")
    say(table(MEMORY, (memory_row(plan) for plan in rows)))
    say("\nA step, by strategy")
    say(table(TIMES, (time_row(plan) for plan in rows)))
    if told["meshes"]:
        say("\nThe best meshes")
        say(table(TIMES, (time_row(plan) for plan in told["meshes"])))
        say("\nWhat more would buy")
        say(table(BOUGHT, map(bought_row, told["doublings"].items())))
    if told["pipeline"]:
        say(f"\n{of_pipeline(told['pipeline'])}")
    say("\nThe way there")
    for line in told["path"]:
        say(f"  - {line}")
    for line in told["warnings"]:
        say(f"! {line}")
    if "verified" in told:
        say("\nFormula beside compiler, bytes of a device and step")
        say(table(("case", "what", "formula", "compiler", "compiler / formula"), map(verified_row, told["verified"])))
        for remark in told["not_verified"]:
            say(f"not compared: {remark}")
    if "compiled" in told:
        write_compiled(told["compiled"], say)


def of_device(hardware: Mapping[str, Any]) -> str:
    """What one device has."""
    usable = f"{size(hardware['usable_memory'])} of {size(hardware['memory'])}"
    peak = f"{hardware['peak_flops']:.4g} FLOP/s"
    return f"{usable} can be used, {peak}; products at {100 * hardware['mfu']:.3g}% of it (--mfu)"


def of_pipeline(pipeline: Mapping[str, Any]) -> str:
    """How long the best pipeline is idle, and what it would take to be less."""
    return (
        f"The best pipeline: {pipeline['stages']} stages, {pipeline['microbatches']} microbatches, idle for "
        f"{pipeline['bubble']:.1%}; {pipeline['microbatches_for_90_percent']} microbatches are busy for 90%"
    )


def write_compiled(told: Mapping[str, Any], say: Callable[[str], object]) -> None:
    """Formula beside compiler, and where they part."""
    recomputed = ", layers recomputed" if told["recomputes"] else ""
    took = "from the cache" if told["seconds"] is None else f"in {duration(told['seconds'])}"
    say(f"\n{told['strategy']} ({mesh(told)}{recomputed}), compiled for {told['target']} {took}: {told['case']}")
    for line in told["scaled"] or ["the whole step"]:
        say(f"  compiled: {line}")
    for line in told["built"]:
        say(f"  ! {line}")
    if refused := told["refused"]:
        say(f"  ! faster, but not built: {'; '.join(refused)}; {next(iter(refused.values()))}")
    held, arguments = told["held"], told["arguments"]
    rows = [beside_row("arguments", arguments)]
    rows += [beside_row(f"  {part}", found) for part, found in arguments["parts"].items()]
    rows += [(f"  {why}", "", f"{extra:+,}", "") for why, extra in arguments["terms"].items()]
    rows += [beside_row("temporary memory", told["temporary"])]
    rows += [
        (f"  {name.replace('_', ' ')}", f"{extra:,.0f}", "", "") for name, extra in told["temporary"]["terms"].items()
    ]
    rows += [
        (f"  largest: {each['spelled']}, {each['term']}", "", f"{each['bytes']:,}", "")
        for each in told["temporary"]["largest"]
    ]
    rows += [beside_row(f"in all, of {size(held['memory'])}", held)]
    rows += [beside_row(f"moved over {each['axis']}", each) for each in told["moved"]]
    say(table(("bytes of a device", "formula", "compiler", "compiler / formula"), rows, words=1))
    say("")
    say(
        table(
            ("collective", "over", "of", "planned", "budget", "census", "written as"),
            map(lane_row, told["collectives"]),
            words=3,
        )
    )
    for line in told["parted"]:
        say(f"! {line}")


def beside_row(what: str, found: Mapping[str, Any]) -> Iterable[str]:
    """An amount by formula and by compiler."""
    ratio = f"{found['compiler'] / found['formula']:.4f}" if found["formula"] else UNKNOWN
    return (what, f"{found['formula']:,.0f}", f"{found['compiler']:,.0f}", ratio)


def lane_row(lane: Mapping[str, Any]) -> Iterable[str]:
    """What one operation moves over some axes."""
    seen = UNKNOWN if lane["census"] is None else f"{lane['census']:,}"
    names = "×".join(lane["axes"]), ", ".join(lane["payloads"])
    planned = UNKNOWN if lane["planned"] is None else f"{lane['planned']:,}"
    written = ", ".join(lane["written"])
    if lane["scattered"]:
        written += f" ({lane['scattered']:,} scattered)"
    return (lane["operation"], *names, planned, f"{lane['budget']:,}", seen, written)


BOUGHT = ("", "strategy", "mesh", "step", "MFU", "tokens/s", "times today's")
MEMORY = (
    *("strategy", "mesh", "fits", "parameters", "gradients", "moments", "activations", "kept", "recomputed"),
    *("layer in use", "logits", "total"),
)
TIMES = (
    "strategy",
    "mesh",
    "microbatches",
    "products",
    "moved",
    "step",
    "at least",
    "at most",
    "MFU",
    "bound by",
    "products/moved",
)


def memory_row(plan: Mapping[str, Any]) -> Iterable[str]:
    """Bytes of each term. Activations are those of the plan; beside them without and with recomputation."""
    if "memory" not in plan:
        return (plan["strategy"], "the batch does not split")
    held = plan["memory"]
    amounts = [held["parameters"], held["gradients"], held["moments"], held["activations"]]
    amounts += [
        plan["activations_kept"],
        plan["activations_recomputed"],
        held["layer_in_use"],
        held["logits"],
        held["total"],
    ]
    return (plan["strategy"], mesh(plan), "yes" if plan["fits"] else "no", *map(amount, amounts))


def time_row(plan: Mapping[str, Any]) -> Iterable[str]:
    """Seconds, and what the step waits for."""
    if "seconds" not in plan:
        return (plan["strategy"], "the batch does not split")
    took, ratio = plan["seconds"], plan["products_over_communication"]
    count = f"{plan['microbatches']}{', recomputed' if plan['recomputes'] else ''}"
    seconds = map(duration, (took["products"], took["communication"], took["step"], took["least"], took["most"]))
    held = "" if plan["fits"] else " (does not fit)"
    told = f"{plan['mfu']:.0%}", plan["bound"] + held, UNKNOWN if ratio is None else f"{ratio:.2f}"
    return (plan["strategy"], mesh(plan), count, *seconds, *told)


def bought_row(entry: tuple[str, Mapping[str, Any]]) -> Iterable[str]:
    """One doubling."""
    name, plan = entry
    if "why_not" in plan:
        return (name, plan["why_not"])
    speed = f"{plan['tokens_per_second']:.4g}", f"{plan['speed_up']:.2f}"
    return (name, plan["strategy"], mesh(plan), duration(plan["seconds"]["step"]), f"{plan['mfu']:.0%}", *speed)


def verified_row(found: Mapping[str, Any]) -> Iterable[str]:
    """One amount of one case."""
    ratio = UNKNOWN if found["ratio"] is None else f"{found['ratio']:.4f}"
    seen = UNKNOWN if found["compiler"] is None else f"{found['compiler']:,.0f}"
    return (found["case"], found["what"], f"{found['formula']:,.0f}", seen, ratio)


def mesh(plan: Mapping[str, Any]) -> str:
    """Axes and sizes."""
    return ", ".join(f"{axis}={devices}" for axis, devices in plan["mesh"].items()) or "1"


def amount(held: float | None) -> str:
    """Bytes, or a dash for what is not known."""
    return UNKNOWN if held is None else size(held)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], words: int = 3) -> str:
    """Rows as text; all but the first columns, which are ``words``, are set to the right."""
    drawn = Table(*headings, box=None, pad_edge=False, header_style="bold")
    for column in drawn.columns[words:]:
        column.justify = "right"
    for row in rows:
        drawn.add_row(*map(Text, row))
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in chain(capture.get().splitlines()))
