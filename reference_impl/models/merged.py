"""What a pipeline's stage runs where its model is made of Flax NNX modules: modules merged with the stage's arrays.

The state is arrays alone: a schedule differentiates by arrays, and no object goes from tick to tick. ``nnx.vmap`` makes
all blocks, stacked; a scan takes one after the other out of the stage's stack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from flax import nnx


class Merged(ABC):
    """A model that names its modules; of the blocks, that are alike, one."""

    @property
    @abstractmethod
    def makers(self) -> dict[str, Callable[[nnx.Rngs], Any]]:
        """What makes each module."""

    def module(self, name: str, parameters: Mapping[str, Any]) -> Any:
        """One of them with these parameters."""
        graph, state = nnx.split(nnx.eval_shape(lambda: self.makers[name](nnx.Rngs(0))))
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(graph, state)


def draw(make: Callable[[nnx.Rngs], Any], rngs: nnx.Rngs) -> dict[str, Any]:
    """The parameters of a new module."""
    return nnx.to_pure_dict(nnx.state(make(rngs), nnx.Param))  # type: ignore[no-any-return]


def draw_stack(make: Callable[[nnx.Rngs], Any], rngs: nnx.Rngs, count: int) -> dict[str, Any]:
    """Those of so many, stacked; each has draws of its own."""
    return draw(nnx.split_rngs(splits=count)(nnx.vmap(make)), rngs)
