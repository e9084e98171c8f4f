"""The GPT of the book whose attention is Flax's own ``nnx.MultiHeadAttention``, as it is.

It differs from the hand-made one twice. Its keys have a bias, whose gradient is zero but for rounding. And it
multiplies query, key and value one after another, so that tensor parallelism reduces their input's gradient three
times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from reference_impl.mapping import Mapping
from reference_impl.models import Region, gpt, gpt_nnx
from reference_impl.models.layout import Layout
from reference_impl.truth import FlaxGPTTruth, Optimizer


@dataclass(frozen=True)
class FlaxGPT(gpt.GPT):
    """Sizes as of a GPT."""

    key_bias: ClassVar[bool] = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """``flax_gpt``, or ``flax_gpt_block`` where there is but one."""
        return f"flax_{super().name}"

    def regions(self) -> Iterator[Region]:
        """Those of a GPT, but that the residual stream enters the heads three times."""
        for region in super().regions():
            yield region._replace(entered=3 * region.entered) if region.axis == "heads" else region

    def truth(self, optimizer: Optimizer) -> FlaxGPTTruth:
        """The truth of this network."""
        return FlaxGPTTruth(optimizer=optimizer, **vars(self))


class Attention(nnx.MultiHeadAttention):
    """Causal, its initializers annotated with their partitioning."""

    def __init__(self, size: gpt.GPT, storage: Mapping, *, rngs: nnx.Rngs) -> None:
        into = gpt_nnx.initializers(storage, "embed", "heads", "head_dim")
        out = gpt_nnx.initializers(storage, "heads", "head_dim", "embed", inputs=2)
        super().__init__(
            size.heads,
            size.embed,
            size.heads * size.head_dim,
            **into,
            **{f"out_{name}": init for name, init in out.items()},
            decode=False,
            rngs=rngs,
        )

    def __call__(self, x_BxTxD: jax.Array, layout: Layout) -> jax.Array:  # type: ignore[override]
        """What the heads add to the residual stream (B, T, D)."""
        mask_1x1xTxS = nnx.make_causal_mask(jnp.ones((1, x_BxTxD.shape[1])))
        return layout.leave(super().__call__(x_BxTxD, mask=mask_1x1xTxS), "heads", ("embed",))


class Block(gpt_nnx.Block):
    """The block of the book around that attention."""

    attend = Attention


class GPT(gpt_nnx.GPT):
    """``FlaxGPT`` as a module. Each of its dropouts has a key of its own, and counts its calls."""

    block = Block

    def __init__(self, description: FlaxGPT, storage: Mapping, *, rngs: nnx.Rngs) -> None:
        super().__init__(description, storage, rngs=rngs)
        rate, sites = description.dropout, range(2 * description.blocks if description.dropout else 0)
        self.dropouts = nnx.List([nnx.Dropout(rate, rngs=nnx.Rngs(dropout=site)) for site in sites])

    def dropout(self, step: int | jax.Array) -> Callable[..., jax.Array]:
        """What drops at a ``site``, or leaves it, as `nnx.Module.train` and ``eval`` say."""
        return (lambda y_BxTxD, site: self.dropouts[site](y_BxTxD)) if self.dropouts else lambda y_BxTxD, site: y_BxTxD
