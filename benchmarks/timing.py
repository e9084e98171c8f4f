"""How windows are timed, and what is saved beside the times."""

from __future__ import annotations

from functools import partial
from typing import Any

from meshproof.observing.compilations import compilations_of

from .device_time import device_seconds
from .program import Program, compile_program
from .record import before, rates
from .window import STEPS, Window

ROUNDS = 10


def time_windows(benchmark: Any, window: Window, size: str, program: Program | None = None) -> None:
    """Time the windows of a case; ``program`` is the timed function, if it is compiled already.

    All that can fail is done before a time is taken: pytest-benchmark saves a time even if the test fails after it.
    """
    case, member = window.case, window.member
    program = program or compile_program(case, member, window.set_up()[0][0], window.batches[0])
    window.warm_up()
    known = before(case, size, member, program) | {"judged_by": window.judge.name}
    busy = device_seconds(partial(window.run, *window.set_up()[0]))
    with compilations_of() as window.events:
        benchmark.pedantic(window.run, setup=window.set_up, teardown=window.check, rounds=ROUNDS, iterations=1)
        if benchmark.disabled:
            window.check()
    known["measured"] |= {"loss": window.losses[-1], "device_seconds": None if busy is None else busy / STEPS}
    if not benchmark.disabled:
        known["measured"] |= rates(case, member, window.host_batches[0], benchmark.stats.stats.median / STEPS)
    benchmark.extra_info |= known
