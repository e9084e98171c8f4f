"""Compositions of transforms as data: the words that a table of them is written in.

Everything is a function of a pair (x, w) of matrices to a pair of the same shapes, so that whatever is composed can be
composed again. Each has two spellings: what JAX is asked to do, and what that means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["SHAPE", "Axis", "Body", "Collectives", "Function", "Transform", "TransformFamily"]

Axis = str | tuple[str, ...]
"""What collectives run over: a mesh axis, or several as one, major first."""

SHAPE = (8, 8)
"""Of both matrices, seen globally."""

Function = Callable[[Any, Any], tuple[Any, Any]]


class Collectives(Protocol):
    """What a body may ask of the devices. An array has rows, −2, and columns, −1, and maybe dimensions before."""

    @property
    def named(self) -> bool:
        """Whether these are JAX's, and not what they mean."""

    @property
    def size(self) -> int:
        """How many devices."""

    def psum(self, x: Any) -> Any:
        """The sum over the devices."""

    def all_gather(self, x: Any, dimension: int) -> Any:
        """The shards of all devices, one after the other along a dimension."""

    def psum_scatter(self, x: Any, dimension: int) -> Any:
        """The device's part, along a dimension, of the sum over the devices."""

    def ppermute(self, x: Any) -> Any:
        """What the device before this one has, the last one's on the first."""

    def all_to_all(self, x: Any, split: int, concat: int) -> Any:
        """A part along dimension ``split`` to each device; what comes is one after the other along ``concat``."""

    def mine(self, x: Any, dimension: int) -> Any:
        """The device's part, along a dimension, of what it holds whole."""

    def pmean(self, x: Any) -> Any:
        """The mean over the devices."""

    def place(self, x: Any) -> Any:
        """The device's number among them, in an array that ``x`` can be multiplied by."""

    def shifted(self, x: Any) -> Any:
        """What the device before this one has; zeros on the first."""

    def stacked(self, x: Any) -> Any:
        """The arrays of all devices, in a new dimension −3."""

    def own_sum(self, x: Any) -> Any:
        """The sum over the devices of what each has for this one, by dimension −3, which goes."""

    def dealt(self, x: Any) -> Any:
        """What each device has for this one, by dimension −3, which goes; in a new dimension −1."""


@dataclass(frozen=True)
class Body:
    """What each device computes, and along which dimension x and w are split over the devices (``None``: replicated).

    ``function`` takes the collectives and its shards of x and w. Its results are sharded as its operands are. Numbers
    stay whole: it multiplies, adds, copies and chooses, so that all that is composed of it is exact.
    """

    name: str
    function: Callable[[Collectives, Any, Any], tuple[Any, Any]]
    split: tuple[int | None, int | None]


def same(function: Function) -> Function:
    """The function itself: what a transform means that changes no number."""
    return function


@dataclass(frozen=True)
class Transform:
    """What JAX makes of a function, and what that means, in plain terms.

    ``reverse``: it differentiates backwards, and without ``check_vma`` leaves each device a gradient of its own.
    """

    name: str
    apply: Callable[[Function], Function]
    meaning: Callable[[Function], Function] = same
    reverse: bool = False


PLAIN = Transform("plain", same)
"""No transform: a composition of one only."""


@dataclass(frozen=True)
class TransformFamily:
    """A transform around each of ``inners``, on ``bodies``."""

    outer: Transform
    inners: tuple[Transform, ...] = field(repr=False)
    bodies: tuple[Body, ...] = field(repr=False)

    @property
    def id(self) -> str:
        """As ``transform-grad@operations``."""
        return f"transform-{self.outer.name}@operations"
