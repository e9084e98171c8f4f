"""Activation rematerialisation: only what runs between blocks is kept; the backward pass computes each block anew.

    kept                           what enters each block, and everything outside of the blocks
    computed anew                  what stands between a block's products, and what leaves them
    gathered anew, under FSDP      a block's parameters, but the last that is added to what leaves it
    reduced anew, under TP         what leaves a block's regions, but the last of them

A block brings its own parameters, so that under FSDP none of them is held whole from the forward pass to the backward.
A strategy that brings all of them before the first block holds them all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax

from reference_impl.models.layout import Block, Whole
from reference_impl.modifiers import Modified


@dataclass(frozen=True)
class Rematerialised(Modified):
    """A model whose blocks are computed anew, backward. Raises ``ValueError`` where it does not run block by block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model.segments:
            raise ValueError(f"{self.model} does not run block by block: there is nothing to compute anew")

    @property
    def promises(self) -> dict[str, Any]:
        """That it does so."""
        return self.model.promises | {"rematerialises": True}

    def bring(self, parameters: Mapping[str, Any], layout: Whole) -> Any:
        """What stands outside of the blocks; each of them brings its own."""
        outside = {name: axes for name, axes in self.axes.items() if name not in self.segments}
        return {**parameters, **layout.bring({name: parameters[name] for name in outside}, outside)}

    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Whole) -> jax.Array:
        """The model's, block by block."""
        return self.model.apply(parameters, x, cast(Whole, BlockByBlock(layout)))


class BlockByBlock:
    """A layout that keeps of a block what enters it, and nothing within it."""

    def __init__(self, layout: Whole) -> None:
        self.layout = layout

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layout, name)

    def block(self, run: Block, parameters: Mapping[str, Any], axes: Mapping[str, Any], x: jax.Array) -> jax.Array:
        """From parameters at rest; the compiler may not take the first computation for the second."""
        return jax.checkpoint(lambda parameters, x: run(self.layout.bring(parameters, axes), x))(parameters, x)
