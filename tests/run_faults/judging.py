"""What must come of a fault: a run goes on bitwise or says which file, a group says which process."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.run_faults import groups, subject
from tests.run_faults.disks import Disk, end_with_parent
from tests.run_faults.pairs import Pair
from tests.run_faults.schedule import TOGETHER, Fault, place
from tests.run_faults.subject import KEEP, STEPS, Harm, Outcome, send

TYPED = ("SaveError", "CheckpointError", "ValueError", "OSError", "FileNotFoundError", "FileExistsError")
"""Errors of a run folder."""


@dataclass(frozen=True)
class Judged:
    """What came of a fault: ``how`` is bitwise, named, or a violation: wrong state, hang, untyped error, lost save,
    unnamed. ``did`` says what was done, ``lost`` the steps to do again."""

    fault: Fault
    did: str
    how: str
    detail: str = ""
    lost: int = 0
    seconds: float = 0.0

    @property
    def violated(self) -> bool:
        """Whether it must not be so."""
        return self.how not in ("bitwise", "named")

    def __str__(self) -> str:
        """One line."""
        more = f": {self.detail}" if self.detail else ""
        return f"{self.fault}, {self.did} → {self.how}{more}"


class Run:
    """A run that nobody disturbs, and what faults make of others like it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pair = Pair(folder, self.is_typed)
        self.half = folder / "half"
        half = subject.run(self.half, until=STEPS - KEEP)
        whole = subject.run(folder / "whole")
        self.expected = whole.digest
        if half.error or not whole.digest:
            raise RuntimeError(f"the undisturbed run failed: {half} {whole}")
        self.operations = whole.operations[1]
        again = self.fresh("again", self.half)
        continued = subject.run(again)
        if continued.digest == "":
            raise RuntimeError(f"the undisturbed run did not go on: {continued}")
        self.restoring = continued.operations[0]

    def settle(self) -> None:
        """Have a folder and a disk of this process's own."""
        self.folder = self.pair.folder = self.folder / str(os.getpid())
        self.folder.mkdir()
        self.disk = self.pair.disk = Disk(self.folder / "disk")

    def fresh(self, name: str, like: Path | None = None) -> Path:
        """A folder of a run, empty or a copy."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        if like:
            shutil.copytree(like, path, dirs_exist_ok=True)  # what is mounted cannot be removed
        return path

    def judge(self, fault: Fault) -> Judged:
        """Let it happen."""
        if fault.point == "launch":
            return Judged(fault, *groups.lose(fault, self.fresh("group")))
        if (fault.kind, fault.point) in TOGETHER:
            return Judged(fault, *self.pair.lose(fault))
        begun = time.monotonic()
        judged = self.disturbed(fault) if fault.point in ("step", "save", "restore") else self.damaged(fault)
        return Judged(**vars(judged) | {"seconds": time.monotonic() - begun})

    def disturbed(self, fault: Fault) -> Judged:
        """A fault while the run runs, and the run that comes after it."""
        left = int(fault.which * (4e5 if self.disk.why else 1.5e7))  # a whole save is 1.4e7
        acts: dict[str, Callable[[], None]] = {
            "kill": send(signal.SIGKILL),
            "torn write": send(signal.SIGKILL),
            "stop": send(signal.SIGSTOP),
            "slow": subject.nap,
            "full disk": self.disk.fill(left),
        }
        save, step = 1 + place(fault.which, STEPS // subject.SAVE_EVERY), place(fault.where, STEPS)
        operation = 0 if fault.kind == "full disk" else place(fault.where, self.operations)
        did, harm = f"before step {step + 1}", Harm(acts[fault.kind], step=step)
        if fault.point == "save":
            did, harm = (
                f"before file operation {operation} of save {save}",
                Harm(harm.act, save=save, operation=operation),
            )
        if fault.kind == "full disk":
            did += f" with {left:,} bytes left ({self.disk.kind})"
        name = self.disk.folder.name if fault.kind == "full disk" else "run"
        folder = self.fresh(name, self.half if fault.point == "restore" else None)
        saved_before = (STEPS - KEEP,) if fault.point == "restore" else ()
        if fault.point == "restore":
            operation = place(fault.where, self.restoring)
            did, harm = f"before file operation {operation}", Harm(harm.act, save=0, operation=operation)
        first = subject.run(folder, harm)
        self.disk.empty()
        if first.hung:
            return Judged(fault, did, "hang")
        if first.digest and fault.kind == "full disk":
            did, first = f"{did}, which it survived", subject.run(folder)
            if first.begin < STEPS:
                return Judged(fault, did, "lost save", f"step {STEPS} was saved, the run went on from {first.begin}")
        if first.digest:
            return self.compared(fault, did, first, 0)
        if first.error and not self.is_typed(first, folder):
            return Judged(fault, did, "untyped error", first.text[:300])
        if not first.error and first.signal != signal.SIGKILL:
            return Judged(fault, did, "crash", f"signal {first.signal}")
        if fault.kind == "torn write":
            torn = sorted(
                path for path in folder.rglob("*") if path.is_file() and "tmp" in str(path.relative_to(folder))
            )
            if torn:
                cut(chosen := torn[place(fault.which, len(torn))])
                did += f", and half of {chosen.relative_to(folder)}"
        second = subject.run(folder)
        known = max((*saved_before, *first.saved), default=0)
        reached = step if fault.point == "step" else subject.SAVE_EVERY * save if fault.point == "save" else known
        if second.digest and second.begin < known:
            return Judged(
                fault, did, "lost save", f"step {known} was saved, the run went on from {second.begin}: {second.text}"
            )
        did += f", {first.error}" if first.error else ""
        return self.compared(fault, did, second, reached - second.begin)

    def damaged(self, fault: Fault) -> Judged:
        """A fault of a checkpoint that was whole."""
        folder = self.fresh("run", self.half)
        last = max(folder.glob("step_*"))
        files = sorted(path for path in last.rglob("*") if path.is_file() and path.stat().st_size)
        file = files[place(fault.which * 2 % 1, len(files))]
        if fault.which < 0.5:  # else hardly a fault would meet the arrays, which are nearly all of the bytes
            file = max(files, key=lambda path: path.stat().st_size)
        did = f"{file.relative_to(folder)}"
        match fault.kind:
            case "removed file":
                file.unlink()
            case "truncated file":
                cut(file)
            case _:
                bit = place(fault.where, 8 * file.stat().st_size)
                content = bytearray(file.read_bytes())
                content[bit // 8] ^= 1 << bit % 8
                file.write_bytes(content)
                did += f", bit {bit}"
        first = subject.run(folder)
        if first.hung:
            return Judged(fault, did, "hang")
        if first.error:
            if not self.is_typed(first, last):
                return Judged(fault, did, "untyped error", first.text[:300])
            shutil.rmtree(last)
            earlier = self.compared(fault, did, subject.run(folder), subject.SAVE_EVERY)
            return earlier if earlier.violated else Judged(fault, did, "named", first.text[:120], earlier.lost)
        return self.compared(fault, did, first, 0)

    def compared(self, fault: Fault, did: str, outcome: Outcome, lost: int) -> Judged:
        """The state at the end, with that of the run that nobody disturbed."""
        if outcome.hung:
            return Judged(fault, did, "hang")
        if not outcome.digest:
            return Judged(fault, did, "not resumed", outcome.text[:300] or f"signal {outcome.signal}")
        return Judged(fault, did, "bitwise" if outcome.digest == self.expected else "wrong state", lost=lost)

    @staticmethod
    def is_typed(outcome: Outcome, folder: Path) -> bool:
        """Whether the error is one of a run folder, and names it or what is in it."""
        return outcome.error in TYPED and str(folder) in outcome.text


def cut(file: Path) -> None:
    """Half of it is left."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


HERE: list[Run] = []
"""That of this process, which is one of several that judge."""


def begin(run: Run) -> None:
    """Become one of several processes that judge."""
    end_with_parent()
    run.settle()
    HERE.append(run)


def judge(fault: Fault) -> Judged:
    """By the run of this process."""
    return HERE[0].judge(fault)
