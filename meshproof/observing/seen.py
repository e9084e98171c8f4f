"""A value that was seen of a case, or why it was not: plain data, which can be pickled and kept."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self, TypeAlias, TypeVar, get_type_hints


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
class ToldOnce(Failed):
    """Not seen for a fault of one ``clause``, which tells it: the contract declares what is not there, or a case does
    not answer. Others cannot be judged before it is mended."""

    clause: str


@dataclass(frozen=True)
class NotExercised:
    """Not run at all on this machine, or for this target: no verdict."""

    reason: str


NOT_RUN = NotExercised("this target only compiles: nothing is run, and no numbers are computed")
"""What is said of everything that takes a device."""

T = TypeVar("T")
Unseen: TypeAlias = NotSupported | Failed | NotExercised
Seen: TypeAlias = T | Unseen


@dataclass(frozen=True)
class Facet:
    """A part of an observation. It is always there; each of its fields is a facet or a value that was seen, or not."""

    @classmethod
    def unseen(cls, why: Unseen) -> Self:
        """A facet in which no value was seen, for one reason, nor in the facets that it holds."""
        kinds = get_type_hints(cls)
        return cls(
            **{
                field.name: kind.unseen(why) if isinstance(kind, type) and issubclass(kind, Facet) else why
                for field in fields(cls)
                for kind in [kinds[field.name]]
            }
        )
