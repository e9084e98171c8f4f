"""Starts an observing process: its own ends of the two pipes first, so that nothing else is said or read there."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import traceback
from queue import SimpleQueue
from threading import Thread
from typing import IO

from meshproof.children import end_own_group


def main(implementation: str, target: str, ends_itself_after: str) -> None:
    """Answer requests until nobody is left who could make one.

    What strategies print goes to standard error, and they have nothing to read. Whatever takes ``ends_itself_after``
    seconds ends the process: whoever started it, and would have done so sooner, is gone.
    """
    limit = float(ends_itself_after)
    faulthandler.dump_traceback_later(limit, exit=True)  # as `listen` cannot while C code holds the interpreter's lock
    answers, requests = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    asked: SimpleQueue[str] = SimpleQueue()
    Thread(target=listen, args=(requests, asked), daemon=True).start()

    from meshproof.observing.serving import Server

    server, word = Server(implementation, target), "ready"
    gc.freeze()  # what is loaded stays: looking through it for garbage took a twentieth of a run with programs kept
    while True:
        answers.write(f"{word}\n")
        answers.flush()
        faulthandler.cancel_dump_traceback_later()
        request = asked.get()
        faulthandler.dump_traceback_later(limit, exit=True)
        word = server.answer(request)


def listen(requests: IO[str], asked: SimpleQueue[str]) -> None:
    """Take requests; where nobody is left who could make one, end this process and all that it started."""
    for line in requests:
        asked.put(line)
    end_own_group()


if __name__ == "__main__":
    code = 1
    try:
        main(*sys.argv[1:])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # whatever threads of a strategy still run
