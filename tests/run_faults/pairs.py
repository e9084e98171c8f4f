"""A run of two processes of which one comes to harm in a save or a restore: who is named, and does it go on bitwise?

The processes are forked, so that nothing is imported anew, before JAX knows of either; `meshproof.launching` watches
them as it watches those of a command. The run goes on from a checkpoint, so that its initial state is compiled once.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax

from meshproof.children import end
from meshproof.launching import at_exit
from meshproof.launching.endings import Fault as Found
from meshproof.launching.group import ADDRESS, COUNT, NUMBER, free_port
from meshproof.launching.marks import MARKS
from meshproof.launching.watch import Watch
from reference_impl.lifecycle import multiprocess
from tests.run_faults import subject
from tests.run_faults.disks import Disk, end_with_parent
from tests.run_faults.schedule import RESTORE, Fault, place
from tests.run_faults.subject import NONE, SAVE_EVERY, STEPS, Harm, Outcome

PROCESSES = 2
BEGIN = SAVE_EVERY
"""The step of the checkpoint from which all of them go on."""

STUCK_AFTER, NAMED_WITHIN = 45.0, 10.0
PATIENCE = 2.0
"""How many times as long as undisturbed ones two processes may take, of which one is asleep, until their limit."""


@dataclass
class Fork:
    """A process of this program's own code, with what the launcher asks of a ``subprocess.Popen``."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` while it runs."""
        if self.returncode is None and (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(found[1])
        return self.returncode

    def wait(self, _: float) -> None:
        """Until it is over: it was killed."""
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(frozen=True)
class Ended:
    """How two processes ended: what the launcher found, what each told, and the seconds from the harm until then."""

    found: Found | None
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def digest(self) -> str:
        """That of the last state, where both have the same."""
        digests = {outcome.digest for outcome in self.outcomes}
        return digests.pop() if len(digests) == 1 else ""

    def __str__(self) -> str:
        """What is known of an end that should not be."""
        told = [outcome.text or outcome.digest[:8] for outcome in self.outcomes]
        return " | ".join([str(self.found), *(self.found.details if self.found else ()), *told])[:400]


@dataclass
class Pair:
    """A run of two processes that nobody disturbs, and what faults make of others like it. ``typed`` tells whether an
    error is one of a run folder; ``disk`` is where it meets a full one."""

    folder: Path
    typed: Callable[[Outcome, Path], bool]
    disk: Disk | None = None
    seconds: float = 0.0

    @cached_property
    def undisturbed(self) -> Ended:
        """From the checkpoint of `half` to the end."""
        begun = time.monotonic()
        whole = self.train(shutil.copytree(self.half, self.folder / "pair_whole"))
        self.seconds = time.monotonic() - begun
        if not whole.digest:
            raise RuntimeError(f"the undisturbed run of two processes did not go on: {whole}")
        return whole

    @cached_property
    def half(self) -> Path:
        """A run that has saved the first checkpoint."""
        folder = self.folder / "pair_half"
        half = self.train(folder, until=BEGIN)
        if not half.digest:
            raise RuntimeError(f"the undisturbed run of two processes failed: {half}")
        return folder

    def lose(self, fault: Fault) -> tuple[str, str, str, int, float]:
        """What was done, what came of it, details, the steps to do again, and the seconds until it was named."""
        operations = [outcome.operations for outcome in self.undisturbed.outcomes]
        who, save = int(fault.which < 0.5), 1 + place(fault.which * 2 % 1, (STEPS - BEGIN) // SAVE_EVERY)
        save = 0 if fault.point == RESTORE else save
        operation = place(fault.where, operations[who][save])
        did = f"process {who} of {PROCESSES} before file operation {operation} of " + (f"save {save}" if save else "it")
        folder = self.disk.folder if fault.kind == "full disk" else self.folder / "pair"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.half, folder, dirs_exist_ok=True)
        acts = {
            "kill": subject.send(signal.SIGKILL),
            "stop": subject.send(signal.SIGSTOP),
            "asleep": fall_asleep,
            "full disk": self.disk.fill(0),
        }
        limit, within = subject.LIMIT, NAMED_WITHIN
        if fault.kind == "asleep":  # until then nothing tells it from a long save
            limit = within = max(NAMED_WITHIN, PATIENCE * self.seconds)
        first = self.train(folder, Harm(acts[fault.kind], save=save, operation=operation), who, limit=limit)
        self.disk.empty()
        did += f" ({self.disk.kind})" if fault.kind == "full disk" else ""
        if not first.digest and not (self.names(fault, first, who, folder) and first.seconds < within):
            return did, "unnamed", f"after {first.seconds:.1f} s: {first}", 0, first.seconds
        second = self.train(folder)
        known = max((BEGIN, *(step for outcome in first.outcomes for step in outcome.saved)))
        begin = min(outcome.begin for outcome in second.outcomes)
        if not second.digest:
            return did, "not resumed", f"{second}", 0, first.seconds
        if begin < known:
            return did, "lost save", f"step {known} was saved, the run went on from {begin}", 0, first.seconds
        how = "bitwise" if second.digest == self.undisturbed.digest else "wrong state"
        lost = BEGIN + save * SAVE_EVERY - begin if save else 0
        seconds = first.seconds if fault.kind in ("kill", "stop") else 0.0
        errors = [f"{each.error} of process {number}" for number, each in enumerate(first.outcomes) if each.error]
        named = " and ".join(errors) if fault.kind == "full disk" else f"named: {first.found}"
        did += ", which it survived" if first.digest else f", {named}"
        return did, how, "", lost, seconds

    def names(self, fault: Fault, first: Ended, who: int, folder: Path) -> bool:
        """Whether the process is named, or the folder where the disk is full; of one asleep, where all else waits,
        that it is told where each stands."""
        if fault.kind == "full disk":
            return any(self.typed(outcome, folder) for outcome in first.outcomes)
        if fault.kind == "asleep":
            details = first.found.details if first.found else ()
            asleep = [number for number, line in enumerate(details) if f"in {fall_asleep.__name__}" in line]
            return asleep == [who]
        return first.found is not None and first.found.number == who

    def train(
        self, folder: Path, harm: Harm = NONE, who: int = -1, until: int = STEPS, limit: float = subject.LIMIT
    ) -> Ended:
        """Begin, or go on from the last checkpoint; until both have ended, or the launcher finds one at fault."""
        marks = self.folder / "pair_marks"
        shutil.rmtree(marks, ignore_errors=True)
        marks.mkdir()
        variables = {ADDRESS: f"127.0.0.1:{free_port()}", COUNT: str(PROCESSES), MARKS: str(marks)}
        processes: list[Fork] = []
        try:
            for number in range(PROCESSES):
                if (process := os.fork()) == 0:
                    end_with_parent()
                    os.setsid()
                    suffer = replace(harm, act=marked(harm.act, marks)) if number == who else NONE
                    subject.tell(
                        marks / f"{number}.json",
                        lambda: member(variables | {NUMBER: str(number)}, folder, marks, suffer, until),  # noqa: B023
                    )
                processes.append(Fork(process))
            found = Watch(processes, marks).watch(STUCK_AFTER, limit, None)  # type: ignore[arg-type]
        finally:
            for each in processes:
                end(each)  # type: ignore[arg-type]
        harmed = marks / "harmed"
        outcomes = (
            subject.read(marks / f"{number}.saved", marks / f"{number}.json", min(0, process.returncode or 0))
            for number, process in enumerate(processes)
        )
        return Ended(found, tuple(outcomes), time.time() - harmed.stat().st_mtime if harmed.exists() else 0.0)


def member(variables: dict[str, str], folder: Path, marks: Path, harm: Harm, until: int) -> dict[str, object]:
    """One of the processes, with its half of the devices, and what it comes to."""
    log = os.open(marks / f"{variables[NUMBER]}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= variables
    at_exit.begin(variables[MARKS], variables[NUMBER])
    jax.config.update("jax_num_cpu_devices", subject.DEVICES // PROCESSES)
    multiprocess.join()
    told = subject.train_in(folder, marks / f"{variables[NUMBER]}.saved", harm, until)
    jax.distributed.shutdown()
    return told


def marked(act: Callable[[], None], marks: Path) -> Callable[[], None]:
    """The same, and when it was."""

    def harm() -> None:
        (marks / "harmed").touch()
        act()

    return harm


def fall_asleep() -> None:
    """For longer than anybody waits."""
    time.sleep(subject.LIMIT)
