"""Activation rematerialisation: only what runs between blocks is kept; the backward pass recomputes each block.

    kept                           what enters each block, and everything outside of the blocks
    recomputed                     what stands between a block's products, and what leaves them
    gathered again, under FSDP     a block's parameters, but not the one that is only added to its output
    reduced again, under TP        what leaves a block's regions, but not the last of them

A block gathers its own parameters, so that under FSDP none of them is held whole from the forward pass to the backward.
A strategy that gathers all of them before the first block holds them whole all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax

from reference_impl.models.layout import Block, Layout
from reference_impl.modifiers import Modified


@dataclass(frozen=True)
class Rematerialised(Modified):
    """A model whose blocks the backward pass recomputes. Raises ``ValueError`` where it does not run block by block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model.segments:
            raise ValueError(f"{self.model} does not run block by block: there is nothing to recompute")

    @property
    def promises(self) -> dict[str, Any]:
        """The model's, and that the backward pass recomputes."""
        return self.model.promises | {"rematerialises": True}

    def reshard(self, parameters: Mapping[str, Any], layout: Layout) -> Any:
        """Those outside of the blocks; each block reshards its own."""
        outside = {name: axes for name, axes in self.axes.items() if name not in self.segments}
        return {**parameters, **layout.reshard({name: parameters[name] for name in outside}, outside)}

    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The model's, block by block."""
        return self.model.apply(parameters, x, cast(Layout, BlockByBlock(layout)))

    def applied(self, apply: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], jax.Array]:
        """Raises ``ValueError``: a framework's module runs whole, and nothing of it would be recomputed."""
        raise ValueError(
            f"{self.model} as a framework's module: expected a plain JAX form, which runs it block by block"
        )


class BlockByBlock:
    """A layout that keeps the input of a block, and nothing within it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layout, name)

    def block(self, run: Block, parameters: Mapping[str, Any], axes: Mapping[str, Any], x: jax.Array) -> jax.Array:
        """From parameters at rest; ``jax.checkpoint`` keeps the compiler from merging the two computations."""
        return jax.checkpoint(lambda parameters, x: run(self.layout.reshard(parameters, axes), x))(parameters, x)
