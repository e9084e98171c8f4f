"""What carries bytes between devices, hosts and memories, beside the links that a chip has."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Link:
    """``bandwidth`` is one device's, in bytes per second one way; ``joins`` is what, in words.

    ``tutorial`` is what a widely read table gives instead, with what that is a figure of; empty if it gives none.
    """

    name: str
    bandwidth: float
    joins: str
    source: str
    tutorial: dict[str, Any]


@cache
def links() -> dict[str, Link]:
    """All that are known, by name."""
    told = tomllib.loads((files(__package__) / "links.toml").read_text(encoding="utf-8"))
    return {name: Link(name, **{"tutorial": {}, **figures}) for name, figures in told.items()}


def find_link(name: str) -> Link:
    """A link. Raises ``ValueError`` for one that there is not, naming those there are."""
    known = links()
    if name.lower() not in known:
        raise ValueError(f"{name!r} is no link that is known here; expected one of {', '.join(known)}")
    return known[name.lower()]
