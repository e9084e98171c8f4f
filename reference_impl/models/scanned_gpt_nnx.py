"""The scanned GPT of Flax NNX modules: a pipeline's stages run ``gpt_nnx.Block``, those at its ends an ``nnx.Embed``.

The first stage calls the table of tokens, the last one its ``attend``: two modules, merged with one array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from flax import nnx

from reference_impl.models import gpt_nnx
from reference_impl.models.gpt import draw_key
from reference_impl.models.layout import Layout
from reference_impl.models.merged import Merged, draw, draw_stack
from reference_impl.models.scanned_gpt import ScannedGPT


@dataclass(frozen=True)
class NnxScannedGPT(ScannedGPT, Merged):
    """Sizes as of a `ScannedGPT`. For stages that hold their blocks whole: a layer that is split would add its bias to
    each part of a sum."""

    @property
    def makers(self) -> dict[str, Callable[[nnx.Rngs], Any]]:
        """Those at the ends by their names in the tree; and a block."""
        return {
            "token_embedding": lambda rngs: table(self.vocab, self.embed, rngs),
            "position_embedding": lambda rngs: table(self.length, self.embed, rngs),
            "norm": lambda rngs: gpt_nnx.layer_norm(self, None, rngs),
            "block": lambda rngs: gpt_nnx.Block(self, None, rngs=rngs),
        }

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters, drawn as those of ``gpt``; each block its own."""
        (*ends, block), rngs = self.makers.items(), nnx.Rngs(key)
        return {name: draw(make, rngs) for name, make in ends} | {"blocks": draw_stack(block[1], rngs, self.blocks)}

    def enter(self, parameters: Mapping[str, Any], x_BxT: jax.Array, layout: Layout) -> jax.Array:
        """The residual stream before the first block."""
        token, position = (self.module(name, parameters[name]) for name in ("token_embedding", "position_embedding"))
        return token(x_BxT) + position.embedding[...]  # type: ignore[no-any-return]

    def through(
        self, parameters: Mapping[str, Any], h_BxTxD: jax.Array, layout: Layout, step: int | jax.Array = 0
    ) -> jax.Array:
        """The residual stream behind as many blocks as the parameters hold."""
        drop = partial(self.drop, key=draw_key(step))

        def body(h_BxTxD: jax.Array, block: Mapping[str, Any]) -> tuple[jax.Array, None]:
            return self.module("block", block)(h_BxTxD, layout, drop, 0), None

        return jax.lax.scan(body, h_BxTxD, parameters["blocks"])[0]

    def leave(self, parameters: Mapping[str, Any], h_BxTxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, T, V)."""
        normal_BxTxD = self.module("norm", parameters["norm"])(h_BxTxD)
        return self.module("token_embedding", parameters["token_embedding"]).attend(normal_BxTxD)  # type: ignore[no-any-return]


def table(rows: int, embed: int, rngs: nnx.Rngs) -> nnx.Embed:
    """Rows drawn normally, of deviation 0.02."""
    return nnx.Embed(rows, embed, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)
