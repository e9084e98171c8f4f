"""Files that are written whole, and documents with a generated part."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write UTF-8 text so that the file is whole or untouched."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or untouched."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def insert(text: str, name: str, table: str) -> str:
    """A document with a table between the two markers of its name. Raises ``ValueError`` where it lacks one of them."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document has no {begin} … {end}: put both where the table shall stand")
    return f"{head}{begin}\n{table}\n{end}{tail}"
