"""The stacks of constraints/, as what `meshproof.environments` makes an environment of."""

from __future__ import annotations

import re
from pathlib import Path

from meshproof.environments import Stack


def pinned(file: Path) -> Stack:
    """The stack that a file pins; its first line names the Python."""
    about, *lines = file.read_text(encoding="utf-8").splitlines()
    version = re.search(r"Python (\d+\.\d+)", about)
    return Stack(tuple(filter(None, lines)), version[1] if version else None)
