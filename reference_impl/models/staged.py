"""What a pipeline demands of a model: it begins, runs as many of its blocks as it is given, and ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from reference_impl.models import Model
from reference_impl.models.layout import Layout


class Staged(Model):
    """A model of ``depth`` blocks, alike and stacked: ``layers`` is the first logical axis of their parameters.

    Its ``axes`` and ``shapes`` are of the tree at rest. `enter` and `leave` run on one stage alone, in a branch that
    the others do not take: a layout must not communicate there.
    """

    @abstractmethod
    def enter(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The first block's input, of the shape of every block's output."""

    @abstractmethod
    def through(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """As many blocks as the parameters hold, one after the other."""

    @abstractmethod
    def leave(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The outputs, of the last block's output."""

    @abstractmethod
    def stack(self, parameters: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
        """The tree at rest of canonical host parameters; row i of a stack is block ``order[i]``."""

    @abstractmethod
    def unstack(self, parameters: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
        """The canonical tree of a tree at rest."""
