"""A value that was seen of a case, or why it was not: plain data, which can be pickled and kept."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self, TypeAlias, TypeVar


@dataclass(frozen=True)
class NotSupported:
    """Not seen, because the strategy lacks the member it takes: no verdict."""

    reason: str


def no_lower(member: str) -> NotSupported:
    """What is said of a function that cannot be compiled ahead of time, and so cannot be looked at."""
    return NotSupported(f"{member} has no lower(): hand over the jitted function itself, or give it one")


@dataclass(frozen=True)
class Failed:
    """Not seen, because the strategy raised, or the instrument could not read it: a fault."""

    reason: str


@dataclass(frozen=True)
class NotExercised:
    """Not run at all on this machine: no verdict."""

    reason: str


T = TypeVar("T")
Seen: TypeAlias = T | NotSupported | Failed


@dataclass(frozen=True)
class Facet:
    """A part of an observation. It is always there; each of its fields is a facet or a value that was seen, or not."""

    @classmethod
    def unseen(cls, why: NotSupported | Failed) -> Self:
        """A facet in which no value was seen, for one reason. Only for classes that hold no other facet."""
        return cls(**{field.name: why for field in fields(cls)})
