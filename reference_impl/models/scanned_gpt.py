"""The GPT whose blocks are alike and stacked: one ``lax.scan`` over them, whatever their number.

Dims as in ``gpt``, and L blocks. The tree is that of ``gpt``, but for its blocks: they are one, ``blocks``, each of
whose parameters has ``layers`` as its first logical axis. A block's parameters are resharded within the scan, so that
those of one block at a time are gathered: where they are gathered before it, the scan holds all of them.

In a pipeline the first stage looks tokens up in the table that the last one multiplies with: the head is tied. Either
stage has a gradient of it, and the table's is their sum; of the positions, and of the last norm, one stage has all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np

from meshproof.contract import leaves, nest
from reference_impl.models.gpt import GPT, draw_key, init_leaf
from reference_impl.models.layout import Layout
from reference_impl.models.staged import Staged
from reference_impl.truth import Optimizer, StackedGPTTruth


@dataclass(frozen=True)
class ScannedGPT(GPT, Staged):
    """Sizes as of a GPT. Raises ``ValueError`` for dropout: a block does not know its number."""

    blocks: int = 4
    name: ClassVar[str] = "scanned_gpt"  # type: ignore[misc]
    segments: ClassVar[tuple[str, ...]] = ("blocks",)  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.dropout:
            raise ValueError(f"dropout={self.dropout} in a scan over blocks: expected 0")

    @property
    def depth(self) -> int:
        """L."""
        return self.blocks

    @property
    def block_axes(self) -> dict[str, Any]:
        """The logical axes of one block's parameters."""
        return super().axes["blocks"]  # type: ignore[no-any-return]

    @property
    def axes(self) -> dict[str, Any]:
        """The tree with logical axes at its leaves."""
        stacked = nest({path: ("layers", *axes) for path, axes in leaves(self.block_axes)})
        return super().axes | {"blocks": stacked}

    def truth(self, optimizer: Optimizer) -> StackedGPTTruth:
        """The truth of the same network, one block after another."""
        return StackedGPTTruth(optimizer=optimizer, **vars(self))

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters, drawn as those of ``gpt``; each block its own."""

        def init_stack(path: str, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            if not path.startswith("blocks/"):
                return init_leaf(path, key, shape)
            return jax.vmap(lambda key: init_leaf(path, key, shape[1:]))(jax.random.split(key, self.blocks))

        paths = dict(leaves(self.shapes))
        keys = jax.random.split(key, len(paths))
        return nest({path: init_stack(path, key, paths[path]) for key, path in zip(keys, paths, strict=True)})

    def through(
        self, parameters: Mapping[str, Any], h_BxTxD: jax.Array, layout: Layout, step: int | jax.Array = 0
    ) -> jax.Array:
        """The residual stream behind as many blocks as the parameters hold."""
        run = partial(self.run, layout, draw_key(step), 0)

        def body(h_BxTxD: jax.Array, block: Mapping[str, Any]) -> tuple[jax.Array, None]:
            return layout.block(run, block, self.block_axes, h_BxTxD), None

        return jax.lax.scan(body, h_BxTxD, parameters["blocks"])[0]

    def stack(self, parameters: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
        """The same tree; row i of ``blocks`` is block ``order[i]``."""
        return {**parameters, "blocks": jax.tree.map(lambda leaf: leaf[list(order)], parameters["blocks"])}

    def unstack(self, parameters: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
        """The canonical tree: blocks in their own order."""
        return self.stack(parameters, np.argsort(order).tolist())
