"""A group of processes of which one is lost: who is named, and how soon. Without JAX, so that it takes a second.

    python -m tests.run_faults.groups HOW WHO STEP FOLDER

is one of them: it comes by the roll call of the book, and takes steps at which each waits for all others, as in a
collective.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from meshproof.launching.group import ADDRESS, COUNT, NUMBER, Group
from meshproof.launching.marks import MARKS, mark
from tests.run_faults.schedule import Fault, place

ROLL_CALL = Path(__file__).parents[2] / "reference_impl/lifecycle/roll_call.py"
STEPS, STUCK_AFTER, COMING, NAMED_WITHIN = 5, 1.5, 1.5, 10.0
LIMIT = 30.0
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def lose(fault: Fault, folder: Path) -> tuple[str, str, str, int, float]:
    """What was done, what came of it, details, no steps lost, and the seconds until a process was named."""
    folder.mkdir(parents=True)
    count = 2 if fault.which < 0.5 else 4
    who, step = place(fault.which * 2 % 1, count), 1 + place(fault.where, STEPS)
    who = max(who, 1) if fault.kind == "missing" else who
    did = f"process {who} of {count} " + ("does not come" if fault.kind == "missing" else f"before step {step}")
    command = [sys.executable, "-m", "tests.run_faults.groups", fault.kind, str(who), str(step), str(folder)]
    with Group(command, count, 4, folder) as group:
        found = group.watch(STUCK_AFTER, LIMIT)
        words = "\n".join(line for number in range(count) for line in group.last_words(number))
    harmed = folder / "harmed"
    seconds = time.time() - harmed.stat().st_mtime if harmed.exists() else 0.0
    shutil.rmtree(folder)
    if fault.kind == "missing":
        named = f"process {who} of {count} did not come" in words
    else:
        last = f"its last mark is step {step - 1}" if step > 1 else "it marked no step"
        named = found is not None and found.number == who and last in found.told
    detail = f"{found}" if fault.kind != "missing" else words.splitlines()[-1] if words else "nothing was said"
    return did, "named" if named and seconds < NAMED_WITHIN else "unnamed", detail, 0, seconds


def member(how: str, who: int, step: int, folder: Path) -> None:
    """Train, so to speak."""
    number, count, marks = int(os.environ[NUMBER]), int(os.environ[COUNT]), Path(os.environ[MARKS])
    spec = importlib.util.spec_from_file_location("roll_call", ROLL_CALL)
    roll_call = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(roll_call)
    harmed = folder / "harmed"
    if how == "missing" and number == who:
        harmed.touch()
        time.sleep(LIMIT)
    roll_call.call_the_roll(os.environ[ADDRESS], count, number, COMING if how == "missing" else LIMIT)
    for each in range(1, STEPS + 1):
        if each == step and number == who:
            harmed.touch()
            os.kill(os.getpid(), SIGNALS[how]) if how in SIGNALS else time.sleep(LIMIT)
        mark(marks, number, each, f"step {each}")
        while any(step_of(marks / str(other)) < each for other in range(count)):
            time.sleep(0.005)


def step_of(file: Path) -> int:
    """What a process has marked."""
    return int(file.read_text().partition(" ")[0]) if file.exists() else 0


if __name__ == "__main__":
    member(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
