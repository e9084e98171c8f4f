"""Programs whose size is a choice, as data: how fast what JAX makes of them may grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["GrowingProgram"]


@dataclass(frozen=True)
class GrowingProgram:
    """A program of ``depth`` layers of ``width``: ``make`` returns a new function, and what it takes.

    With ``looped`` layers, which ``scan`` repeats, no more is traced however deep it is; else in proportion to depth.
    """

    name: str
    make: Callable[[int, int], tuple[Callable[..., Any], tuple[Any, ...]]]
    looped: bool = False

    @property
    def id(self) -> str:
        """As ``program-scanned@operations``."""
        return f"program-{self.name}@operations"
