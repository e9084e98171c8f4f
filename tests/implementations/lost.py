"""Groups of two processes that watch each other well, or badly: for MPR-2 and MPR-3. ``$LOST`` chooses one.

    python -m tests.implementations.lost HOW

starts both, of which each marks steps, and does what HOW says where one is lost.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from meshproof.children import is_over, stopped_by
from meshproof.launching.group import NUMBER
from meshproof.launching.marks import MARKS, mark
from tests.implementations.minimal import strategies

__all__ = ["strategies"]

CHOSEN = "LOST"

MEMBER = ("-m", "tests.implementations.lost", "member")

OPTIONS = {"healthy": (), "impatient": ("--stuck-after", "6"), "unmarked": (), "short": ()}
"""Of `meshproof launch`."""

HOWS = {
    "unnamed": ("a process was lost", 1),
    "placeless": ("process 1 was lost", 1),
    "unalarmed": ("process 1 was lost at step {step}", 0),
    "survived": ("process 1 was lost at step {step}", 1),
}
"""What a launcher prints, and its exit code. The one that is ``survived`` ends none."""


def __getattr__(name):
    """``several_processes``, as it was chosen."""
    how = os.environ.get(CHOSEN, "absent")
    if name != "several_processes" or how == "absent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if how in OPTIONS:
        return ("python", "-m", "meshproof", "launch", "-n", "2", *OPTIONS[how], "--", "python", *MEMBER, how)
    return ("python", "-m", "tests.implementations.lost", how)


def member(how="healthy"):
    """Train for ever, so to speak."""
    for step in range(1, 2000 if how != "short" else 2):
        if how != "unmarked":
            mark(Path(os.environ[MARKS]), int(os.environ[NUMBER]), step, f"step {step}")
        time.sleep(0.05)


def watch(how):
    """Start two, and say what there is to say when one has died or is stopped: at once, and their marks are gone."""
    words, code = HOWS[how]
    with tempfile.TemporaryDirectory() as folder:
        both = [
            subprocess.Popen([sys.executable, *MEMBER], env=os.environ | {NUMBER: number, MARKS: folder})
            for number in "01"
        ]
        while not any(is_over(each) or stopped_by(each) for each in both):
            time.sleep(0.005)
        print(words.format(step=(Path(folder) / "1").read_text().partition(" ")[0]), file=sys.stderr, flush=True)
        for each in both if how != "survived" else ():
            each.kill()
            each.wait()
    os._exit(code)


if __name__ == "__main__":
    member(*sys.argv[2:]) if sys.argv[1] == "member" else watch(*sys.argv[1:])
