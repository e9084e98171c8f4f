"""The overhead of each strategy over a single device with the same total work: ``python -m benchmarks.overhead``.

All steps of size tiny are timed in one run, in turn: a window of each, then the next round. A round's ratio is a
strategy's time over that of the single device with the same model, batches and optimizer in the same round, so that
whatever slows the machine for a while slows both. It prints the median over rounds with its quartiles, and what
explains it: the FLOPs of all devices over those of the single device (the compiler's count), the number of collectives
of a step, and, measured beside them, the times of an empty program and of an all-reduce of one number on as many
devices. With a file, the table is written between its two markers.
"""

from __future__ import annotations

import sys
import time
from datetime import date
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.cases import Case, load_cases
from meshproof.files import insert, replace_text
from meshproof.observing.brought_truth import digest

from .fit import compile_abstract
from .judges import Judges
from .program import Program, compile_program
from .record import cpu_model, stack
from .sizes import ON_CPU, SIZES
from .window import STEPS, Window

ROUNDS = 15
DEVICES = 8
NAME = "overhead"
HEAD = (
    "| strategy | model | mesh | ms a step | times the single device | work | collectives |\n"
    "|---|---|---|---|---|---|---|"
)


class Timed:
    """One case: its windows, its program, and the seconds of a step in each round."""

    def __init__(self, case: Case, judges: Judges) -> None:
        self.case, self.window = case, Window(case, judges)
        compiled = compile_abstract(case, self.window.batches[0])
        state = self.window.set_up()[0][0]
        program = compiled or compile_program(case, "train_step", state, self.window.batches[0])
        if program is None:
            raise TypeError(f"{case.id}: train_step has no lower(), its work cannot be counted")
        self.program: Program = program
        self.key = (case.strategy.truth, digest(self.window.host_batches))  # type: ignore[attr-defined]
        self.seconds: list[float] = []

    @property
    def work(self) -> float:
        """The FLOPs of all devices together, as the compiler counts them."""
        return float(self.program.facts["flops"]) * self.case.devices

    @property
    def collectives(self) -> int:
        """The number of collectives that a step runs."""
        return sum(entry.executions or 0 for entry in self.program.collectives)

    def run_once(self) -> None:
        """One window, timed and checked."""
        arguments, _ = self.window.set_up()
        start = time.perf_counter()
        self.window.run(*arguments)
        self.seconds.append((time.perf_counter() - start) / STEPS)
        self.window.check()


def measure() -> list[Timed]:
    """Every case of size tiny, timed in turn."""
    judges = Judges()
    timed = [Timed(case, judges) for case in load_cases(SIZES[ON_CPU])]
    for each in timed:
        each.window.warm_up()
    for _ in range(ROUNDS):
        for each in timed:
            each.run_once()
    return timed


def table(timed: list[Timed]) -> str:
    """A row in Markdown for each strategy that has a single device to compare with."""
    alone = {each.key: each for each in timed if each.case.devices == 1}
    rows = [row(each, alone[each.key]) for each in timed if each.case.devices > 1]
    return "\n".join([HEAD, *rows])


def row(each: Timed, alone: Timed) -> str:
    """One strategy beside its single device."""
    ratios = [a / b for a, b in zip(each.seconds, alone.seconds, strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    mesh = ", ".join(f"{axis}={size}" for axis, size in each.case.mesh.items())
    return (
        f"| `{each.case.strategy.name}` | {each.case.strategy.model} | {mesh} | {1e3 * median(each.seconds):.1f} "
        f"| {middle:.1f} ({low:.1f}–{high:.1f}) | {each.work / alone.work:.2f} | {each.collectives} |"
    )


def probe(devices: int, reduce: bool) -> float:
    """The median seconds of a program on so many devices that only adds 1 to a number, or all-reduces it."""
    mesh = Mesh(np.asarray(jax.devices()[:devices]), ("device",), axis_types=(AxisType.Auto,))
    one = jax.device_put(np.zeros(devices, np.float32), NamedSharding(mesh, P("device")))
    body: Any = (lambda x: jax.lax.psum(x, "device")) if reduce else (lambda x: x + 1)
    run = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("device"), out_specs=P() if reduce else P("device")))
    seconds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        jax.block_until_ready([run(one) for _ in range(STEPS)])
        seconds.append((time.perf_counter() - start) / STEPS)
    return median(seconds[1:])


def report() -> str:
    """The table, and below it the probes and the stack."""
    rows = table(measure())
    empty, alone = probe(DEVICES, False), probe(1, False)
    reduced = probe(DEVICES, True)
    versions = ", ".join(f"{name} {version}" for name, version in stack().items())
    return (
        f"{rows}\n\nMedian of {ROUNDS} rounds of {STEPS} steps, quartiles in brackets. In the same run a program that "
        f"only adds 1 took {1e3 * alone:.2f} ms on one device and {1e3 * empty:.2f} ms on {DEVICES}; one that "
        f"all-reduces one number {1e3 * reduced:.2f} ms. {cpu_model()}; {versions}; {date.today()}."
    )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_platforms", "cpu")
    with jax.default_matmul_precision("float32"):
        found = report()
    for path in map(Path, sys.argv[1:]):
        replace_text(path, insert(path.read_text(encoding="utf-8"), NAME, found))
    print(found)
