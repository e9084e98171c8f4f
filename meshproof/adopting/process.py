"""Has a trainer adopted in a process of its own, within a time limit."""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from meshproof.adopting.adapter import AdoptError
from meshproof.children import TRACEBACK, last_words, run, stack
from meshproof.observing.process import Settings

if TYPE_CHECKING:
    from meshproof.adopting.contracts import Adoption


def adoption(target: str, devices: int, seconds: float) -> Adoption:
    """What was seen of ``MODULE:OBJECT`` on that many virtual CPU devices. Raises `AdoptError`."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "adoption.pickle")
        command = [sys.executable, *TRACEBACK, "-m", "meshproof.adopting", target, str(answer)]
        in_time, said, code = run(command, Settings(target, devices, folder).environment("cpu"), seconds)
        if not in_time:
            raise AdoptError(
                "\n".join([f"{target}: expected to be observed within {seconds:g} s; it stood here:", *stack(said)])
            )
        if not answer.exists():
            raise AdoptError("\n".join([f"{target}: the observing process ended with code {code}:", *last_words(said)]))
        found = pickle.loads(answer.read_bytes())
    if isinstance(found, AdoptError):
        raise found
    return found
