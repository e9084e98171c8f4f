"""Files that are written whole."""

from __future__ import annotations

import tempfile
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file so that it is whole or untouched."""
    folder = path.absolute().parent
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, suffix=".tmp", delete=False) as temporary:
        temporary.write(text)
    Path(temporary.name).replace(path)
