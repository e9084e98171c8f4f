"""What the outermost Python of each process of a group runs first, as its ``sitecustomize``: it tells that it is done.

A process that raised does not end: at exit JAX waits for the others, for 300 s where nobody says less, and they wait
for it in a collective. So it writes ``NUMBER.left`` as soon as its program is over, before anything waits, and has
Python print its stack into ``NUMBER.stack`` where a signal ends it. Of the program itself it changes nothing. The
launcher copies this file, so it imports the standard library alone.
"""

from __future__ import annotations

import faulthandler
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

OUTERMOST = "MESHPROOF_OUTERMOST"
"""The environment variable that holds the id of the process that tells: what that starts is not of the group."""

WORDS = 400
"""Characters of an exception that are told."""


class Telling:
    """How the program of this process ends, as far as Python sees it: by an exception, by `sys.exit`, or at its end."""

    def __init__(self, own: Path) -> None:
        self.own, self.process, self.exit = own, os.getpid(), sys.exit
        self.raised = self.exited = ""

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: it hears of what nobody caught, whatever `sys.excepthook` is by then."""
        if event == "sys.excepthook" and threading.current_thread() is threading.main_thread():
            kind, value = arguments[1:3]
            said = next(iter(str(value).splitlines()), "")
            self.raised, self.exited = f"{kind.__qualname__}{said and ': '}{said}"[:WORDS], ""

    def leave(self, status: Any = None, /) -> None:
        """`sys.exit`, which is heard; the program may yet catch it."""
        self.raised, self.exited = "", f"{status!r}"[:WORDS] if status else ""
        self.exit(status)

    def tell(self) -> None:
        """Write it, but not in a fork."""
        if os.getpid() == self.process:
            told = {"process": self.process, "at": time.monotonic(), "raised": self.raised, "exited": self.exited}
            temporary = self.own.with_suffix(".leaving")
            with suppress(OSError):  # the launcher has gone, with its folder
                temporary.write_text(json.dumps(told), encoding="utf-8")
                temporary.replace(self.own.with_suffix(".left"))


def begin(folder: str, number: str) -> None:
    """Hear of the end, and have a stack printed where none would be."""
    own = Path(folder) / f"{number}.left"
    telling = Telling(own)
    sys.addaudithook(telling.hear)
    sys.exit = telling.leave  # type: ignore[assignment]
    threading._register_atexit(telling.tell)  # type: ignore[attr-defined]  # before `atexit`, where JAX waits
    if not faulthandler.is_enabled():
        printed = own.with_suffix(".stack").open("w", encoding="utf-8")
        print(telling.process, file=printed, flush=True)
        faulthandler.enable(printed)


def run_other() -> None:
    """The ``sitecustomize`` that would have been found without this one."""
    here = str(Path(__file__).parent)
    sys.path[:] = [path for path in sys.path if path != here]
    if spec := importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path):
        assert spec.loader
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    known = [os.environ.get(name, "") for name in ("MESHPROOF_MARKS", "JAX_PROCESS_ID")]
    if os.environ.setdefault(OUTERMOST, str(os.getpid())) == str(os.getpid()) and all(known):
        begin(*known)
    run_other()
