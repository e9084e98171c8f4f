"""What a launcher sees of its processes, and the rules by which it calls one of them lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from meshproof.children import is_over, stopped_by
from meshproof.launching import departures
from meshproof.launching.activity import Activity, is_alive
from meshproof.launching.departures import LEAVING, Departure
from meshproof.launching.endings import Fault, exit_code, exit_text
from meshproof.launching.marks import Marks
from meshproof.launching.places import find_places

STOPPED = 2.0
"""Seconds that a process may be stopped by a signal."""


class Watch:
    """Processes that mark their steps, and tell of their end, in ``folder``."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
        self.processes, self.folder, self.count = processes, folder, len(processes)
        self.marks = Marks(folder)
        self.activity = Activity()
        self.over_at: dict[int, float] = {}
        self.left: dict[int, Departure] = {}
        self.stopped_since: dict[int, float] = {}

    def watch(self, stuck_after: float, limit: float | None, notice: Callable[[str], None] | None) -> Fault | None:
        """As `Group.watch`."""
        begun, patience = time.monotonic(), stuck_after
        while True:
            now = time.monotonic()
            self.look(now)
            if fault := self.dead() or self.leaving(now) or self.stopped(now):
                return fault
            if fault := self.lagging(now, stuck_after) or self.early(now, stuck_after):
                return fault
            running = len(self.running())
            if not running:
                return None
            if limit is not None and now - begun > limit:
                told = f"expected every process to end within {limit:g} s, {running} still run"
                return Fault(None, told, self.where_all_are(now))
            still = now - max(self.marks.since.values())
            marked = any((*self.marks.counts.values(), *self.marks.unread.values()))
            if notice and marked and still > patience:
                patience = 2 * still
                notice("\n".join([f"no process has marked a step for {still:.0f} s; all go on", *self.stand(now)]))
            time.sleep(0.05)

    def look(self, now: float) -> None:
        """See what each process has marked, whether it or its program is over, and whether it computes."""
        for number, process in enumerate(self.processes):
            if is_over(process):
                self.over_at.setdefault(number, now)
            told = departures.read(self.folder, number)
            if told and (number in self.over_at or told.process == process.pid or is_alive(told.process)):
                self.left[number] = told
            else:
                self.left.pop(number, None)
        self.marks.read(self.count, now)
        self.activity.look((process.pid for process in self.processes), now)

    def running(self) -> list[int]:
        """The processes that have not ended."""
        return [number for number in range(self.count) if number not in self.over_at]

    def dead(self) -> Fault | None:
        """The process that ended with an error. Of several, one that a signal killed, else the one that was first.

        By SIGABRT JAX ends those that another one has left.
        """
        codes = {number: exit_code(self.processes[number]) for number in self.over_at}
        bad = {number: code for number, code in codes.items() if code}
        if not bad:
            return None
        failed = {number: told.at for number, told in self.left.items() if told.raised and codes.get(number) != 0}

        def rank(number: int) -> tuple[int, float, int]:
            if number in failed:
                return 1, failed[number], number
            at = self.left[number].at if number in self.left else self.over_at[number]
            return 1 if bad[number] > 0 else 2 if bad[number] == -signal.SIGABRT else 0, at, number

        number = min(bad | failed, key=rank)
        others = ", ".join(str(each) for each in bad if each != number)
        more = f"; by then process {others} had ended too" if others else ""
        return Fault(number, f"{self.failure(number)}; {self.marks.last(number)}{more}{self.gone_before(number)}")

    def leaving(self, now: float) -> Fault | None:
        """The process whose program has failed, and which waits for the others, or for threads of its own."""
        late = {
            number: told.at
            for number, told in self.left.items()
            if told.raised and number not in self.over_at and now - told.at > LEAVING
        }
        if not late:
            return None
        number = min(late, key=lambda each: late[each])
        told = f"{self.failure(number)}; {self.marks.last(number)}{self.gone_before(number)}"
        return Fault(number, told)

    def failure(self, number: int) -> str:
        """How a process failed: what its program says, and how it ended."""
        how, told = exit_text(self.processes[number]), self.left.get(number)
        if not told or not told.raised:
            return how
        if not how:
            return f"{told}, and has not ended since: at exit JAX waits for the others"
        return f"{told}" if how == "exited with code 1" else f"{told}, and {how}"

    def stopped(self, now: float) -> Fault | None:
        """The process that a signal has stopped."""
        for number in self.running():
            if not (name := stopped_by(self.processes[number])):
                self.stopped_since.pop(number, None)
            elif now - self.stopped_since.setdefault(number, now) > STOPPED:
                return Fault(number, f"is stopped by {name}; {self.marks.last(number)}")
        return None

    def lagging(self, now: float, stuck_after: float) -> Fault | None:
        """The process that marks no further step though others have gone on."""
        late = self.marks.laggards(now, stuck_after)
        if not late or not self.running():
            return None
        number, *others = late
        how = "has ended" if number in self.over_at else f"{self.left.get(number, 'is stuck')}"
        too = f" (as do {', '.join(map(str, others))})" if others else ""
        ahead = max(self.marks.counts, key=lambda each: self.marks.counts[each])
        waited = f"more than {stuck_after:g} s ago, while process {ahead} is at {self.marks.texts[ahead]}"
        return Fault(number, f"{how}{too}: {self.marks.last(number)}, {waited}", self.where_all_are(now))

    def early(self, now: float, stuck_after: float) -> Fault | None:
        """The process that was done first, where those that are not have neither marked nor computed anything since."""
        gone = {number: told.at for number, told in self.left.items()} | self.over_at
        waiting = [number for number in range(self.count) if number not in gone]
        if not gone or not waiting:
            return None
        since = max(*gone.values(), *self.marks.since.values())
        idle = min(self.activity.idle_for(self.processes[number].pid, now) for number in waiting)
        number = min(gone, key=lambda each: gone[each])
        failed = number in self.left and self.left[number].exited
        patience = min(LEAVING, stuck_after) if failed else stuck_after
        if min(now - since, idle) <= patience:
            return None
        after = self.marks.after(waiting[0])
        waits = f"process {waiting[0]} waits {after}, and has computed nothing for {patience:g} s"
        return Fault(number, f"{self.done(number)}, {waits}", self.where_all_are(now))

    def gone_before(self, number: int) -> str:
        """Whose program was over, without an error, before process ``number`` failed."""
        gone = [each for each in self.over_at if exit_code(self.processes[each]) == 0]
        gone += [each for each, told in self.left.items() if each not in self.over_at and not told.raised]
        return "".join(f"; before that process {each} {self.done(each)}" for each in gone if each != number)

    def done(self, number: int) -> str:
        """How the program of a process ended that did not fail, and after which step."""
        how = "ended with code 0" if number in self.over_at else f"{self.left[number]}"
        return f"{how} {self.marks.after(number)}"

    def stand(self, now: float) -> list[str]:
        """What each process marked last, when, and whether it computes, a line each."""
        lines = []
        for number, process in enumerate(self.processes):
            marked = self.marks.last(number)
            if self.marks.texts.get(number):
                marked += f", {now - self.marks.since[number]:.0f} s ago"
            if number in self.over_at:
                does = exit_text(process) or "ended with code 0"
            else:
                left = f"{self.left[number]}, and " if number in self.left else ""
                does = f"{left}{self.activity.told(process.pid)}"
            lines.append(f"process {number}: {marked}; it {does}")
        return lines

    def where_all_are(self, now: float) -> tuple[str, ...]:
        """The same, with the line of Python where each process is; for that they must end."""
        lines = self.stand(now)
        places = find_places(self.folder, self.running())
        return tuple(f"{line}{places.get(number, '')}" for number, line in enumerate(lines))
