"""How windows are timed, and what is saved beside the times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from meshproof.observing.compilations import compilations_of

from .device_time import activity
from .floors import Floors
from .program import Program, compile_program
from .record import before, rates
from .window import STEPS, Window

ROUNDS = 10
SHARES = ("communication", "exposed_communication", "idle")


@dataclass(frozen=True)
class Asked:
    """What is asked of windows beside their times: a folder that keeps their traces, and floors."""

    traces: Path | None = None
    floors: Floors = field(default_factory=Floors)

    def folder(self, window: Window) -> Path | None:
        """The folder of a window's trace, if traces are kept."""
        return self.traces and self.traces / f"{re.sub('[^A-Za-z0-9@=,.+-]', '_', window.case.id)}-{window.member}"


NOTHING = Asked()


def time_windows(
    benchmark: Any, window: Window, size: str, program: Program | None = None, asked: Asked = NOTHING
) -> None:
    """Time the windows of a case; ``program`` is the timed function, if it is compiled already.

    All that can fail is done before a time is taken: pytest-benchmark saves a time even if the test fails after it.
    """
    case, member = window.case, window.member
    program = program or compile_program(case, member, window.set_up()[0][0], window.batches[0])
    window.warm_up()
    known = before(case, size, member, program) | {"judged_by": window.judge.name}
    seen = activity(partial(window.run, *window.set_up()[0]), asked.folder(window))
    with compilations_of() as window.events:
        benchmark.pedantic(window.run, setup=window.set_up, teardown=window.check, rounds=ROUNDS, iterations=1)
        if benchmark.disabled:
            window.check()
    known["measured"] |= {"loss": window.losses[-1], "device_seconds": None if seen is None else seen.busy / STEPS}
    known["measured"] |= dict.fromkeys(SHARES) if seen is None else seen.shares
    if not benchmark.disabled:
        known["measured"] |= rates(case, member, window.host_batches[0], benchmark.stats.stats.median / STEPS)
    benchmark.extra_info |= known
    if not benchmark.disabled:
        asked.floors.judge(f"{case.id}, {member}", known)
