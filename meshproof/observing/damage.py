"""What ``restore`` makes of a checkpoint that is not whole: of each copy one file is missing, cut to half, or empty."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves
from meshproof.measures.numerics import bitwise
from meshproof.observing.state import values_of
from meshproof.observing.subject import Subject

FILES, FEW = 4, 12
"""How many files of a checkpoint are damaged: the largest, which holds arrays, and others; and of how few files in all
each is removed: whoever writes them by hand may take one for optional."""

DAMAGES: dict[str, Callable[[int], int | None]] = {
    "cut to half": lambda size: size // 2,
    "removed": lambda _: None,
    "emptied": lambda _: 0,
}
"""Damage to how many of a file's bytes are left: none where the file is not there any more."""

NAMES = ("the state restored from the whole checkpoint", "that restored from the damaged one")


@dataclass(frozen=True)
class Damaged:
    """A checkpoint of which ``file`` was damaged: the first difference of the state that ``restore`` returned.

    ``difference`` is none where ``restore`` raised, or the state is bitwise that of the whole checkpoint.
    """

    file: str
    damage: str
    difference: str | None


def observe_damage(subject: Subject, whole: Path, values: Leaves) -> tuple[Damaged, ...]:
    """Of the largest file every damage, of others one, drawn from a fixed seed; of few files each is removed, too.
    Copies are hard links. ``values`` are those of the state that the whole checkpoint holds.

    Raises ``FileNotFoundError`` where the checkpoint has no file that could be damaged.
    """
    files = sorted(
        (path for path in whole.rglob("*") if path.is_file() and path.stat().st_size),
        key=lambda path: (-_size(path), path),
    )
    if not files:
        raise FileNotFoundError("save left no file with contents in its folder: expected the checkpoint there")
    draw = np.random.default_rng(0)
    others = sorted(draw.permutation(np.arange(1, len(files)))[: FILES - 1])
    chosen = [(files[0], damage) for damage in DAMAGES]
    chosen += [(files[at], str(draw.choice(list(DAMAGES)))) for at in others]
    chosen += [(file, "removed") for file in files if len(files) <= FEW]
    found = []
    for file, damage in dict.fromkeys(chosen):
        copy = whole.with_name("damaged")
        shutil.copytree(whole, copy, copy_function=os.link)
        _damage(copy / file.relative_to(whole), DAMAGES[damage](_size(file)))
        restored = _restored(subject, copy)
        verdict = None if restored is None else bitwise(values, values_of(restored, subject.model), "state", NAMES)
        difference = None if verdict is None or verdict.passed else str(verdict)
        found.append(Damaged(file.relative_to(whole).as_posix(), damage, difference))
        shutil.rmtree(copy)
    return tuple(found)


def _size(file: Path) -> int:
    return file.stat().st_size


def _damage(file: Path, left: int | None) -> None:
    """Write the file anew: it is a link to that of the whole checkpoint."""
    contents = file.read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(contents[:left])


def _restored(subject: Subject, folder: Path) -> Any | None:
    """The state, or none where an error says that there is none."""
    try:
        return jax.block_until_ready(subject.strategy.restore(folder))
    except Exception:
        return None
