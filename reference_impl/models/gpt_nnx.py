"""The GPT of the book in Flax NNX, its initializers annotated with their partitioning.

Query, key and value are ``nnx.LinearGeneral`` layers as in ``nnx.MultiHeadAttention``, but multiplied together: one
after another, as that module does it (``gpt_flax``), their input's gradient is reduced three times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from reference_impl.mapping import Mapping
from reference_impl.models import gpt
from reference_impl.models.layout import Layout


class Attention(nnx.Module):
    """Causal multi-head attention."""

    def __init__(self, size: gpt.GPT, storage: Mapping | None, *, rngs: nnx.Rngs) -> None:
        into, heads = ("embed", "heads", "head_dim"), (size.heads, size.head_dim)
        for name in ("query", "key", "value"):
            init = initializers(storage, *into)
            setattr(self, name, nnx.LinearGeneral(size.embed, heads, use_bias=name != "key", **init, rngs=rngs))
        init = initializers(storage, *into[1:], "embed", inputs=2)
        self.out = nnx.LinearGeneral(heads, size.embed, axis=(-2, -1), **init, rngs=rngs)

    def __call__(self, x_BxTxD: jax.Array, layout: Layout) -> jax.Array:
        """What the heads add to the residual stream (B, T, D)."""
        kernels = [layer.kernel[...] for layer in (self.query, self.key, self.value)]
        x_BxTxD = layout.enter(x_BxTxD, "heads")
        q_BxTxHxK, k_BxSxHxK, v_BxSxHxK = layout.products(
            "btd,dhk->bthk", x_BxTxD, kernels, "embed", ("heads", "head_dim")
        )
        o_BxTxHxK = nnx.dot_product_attention(
            q_BxTxHxK + self.query.bias[...], k_BxSxHxK, v_BxSxHxK + self.value.bias[...], **causal(x_BxTxD.shape[1])
        )
        return layout.leave(self.out(o_BxTxHxK), "heads", ("embed",))


class Block(nnx.Module):
    """Attention and MLP, each behind a norm and beside the residual stream."""

    attend: type = Attention

    def __init__(self, size: gpt.GPT, storage: Mapping | None, *, rngs: nnx.Rngs) -> None:
        self.norm_1 = layer_norm(size, storage, rngs)
        self.attention = self.attend(size, storage, rngs=rngs)
        self.norm_2 = layer_norm(size, storage, rngs)
        self.linear_1 = nnx.Linear(size.embed, size.mlp, **initializers(storage, "embed", "mlp"), rngs=rngs)
        self.linear_2 = nnx.Linear(size.mlp, size.embed, **initializers(storage, "mlp", "embed"), rngs=rngs)

    def __call__(self, x_BxTxD: jax.Array, layout: Layout, drop: Callable[..., jax.Array], site: int) -> jax.Array:
        """The residual stream behind the block; ``drop`` at two sites, from ``site`` on."""
        x_BxTxD = x_BxTxD + drop(self.attention(self.norm_1(x_BxTxD), layout), site=site)
        normal_BxTxD = layout.enter(self.norm_2(x_BxTxD), "mlp")
        h_BxTxF = nnx.gelu(layout.leave(self.linear_1(normal_BxTxD), "embed", ("mlp",)))
        return x_BxTxD + drop(layout.leave(self.linear_2(h_BxTxF), "mlp", ("embed",)), site=site + 1)


class GPT(nnx.Module):
    """``gpt.GPT`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``.

    It drops by the number of the step, as the description does, and not by that of its own calls.
    """

    block: type = Block

    def __init__(self, description: gpt.GPT, storage: Mapping, *, rngs: nnx.Rngs) -> None:
        size, self.description = description, description
        for name, axis, rows in (("token", "vocab", size.vocab), ("position", "position", size.length)):
            init = annotated(nnx.initializers.normal(0.02), storage, axis, "embed")
            setattr(self, f"{name}_embedding", nnx.Embed(rows, size.embed, embedding_init=init, rngs=rngs))
        for i in range(size.blocks):
            setattr(self, f"block_{i}", self.block(size, storage, rngs=rngs))
        self.norm = layer_norm(size, storage, rngs)

    def __call__(self, x_BxT: jax.Array, layout: Layout, step: int | jax.Array = 0) -> jax.Array:
        """Logits (B, T, V)."""
        drop = self.dropout(step)
        tokens = layout.share(self.token_embedding.embedding[...], ("vocab", "embed"))
        h_BxTxD = layout.stream(layout.look_up(tokens, x_BxT) + self.position_embedding.embedding[...])
        for i in range(self.description.blocks):
            h_BxTxD = getattr(self, f"block_{i}")(h_BxTxD, layout, drop, 2 * i)
        return layout.logits(tokens, self.norm(h_BxTxD))

    def dropout(self, step: int | jax.Array) -> Callable[..., jax.Array]:
        """What drops at a ``site``."""
        return partial(self.description.drop, key=gpt.draw_key(step))


def causal(length: int) -> dict[str, Any]:
    """How attention is told to look back only: Flax before 0.12.2 takes a mask."""
    if "is_causal" in signature(nnx.dot_product_attention).parameters:
        return {"is_causal": True}
    return {"mask": nnx.make_causal_mask(jnp.ones((1, length)))}


def layer_norm(size: gpt.GPT, storage: Mapping | None, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """A layer norm over the residual stream."""
    scale_init = annotated(nnx.initializers.ones_init(), storage, "embed")
    bias_init = annotated(nnx.initializers.zeros_init(), storage, "embed")
    return nnx.LayerNorm(size.embed, epsilon=gpt.EPSILON, scale_init=scale_init, bias_init=bias_init, rngs=rngs)


def initializers(storage: Mapping | None, *axes: str, inputs: int = 1) -> dict[str, Any]:
    """Those of a linear layer whose kernel has these logical axes; it sums over the first ``inputs`` of them."""
    return {
        "kernel_init": annotated(nnx.initializers.lecun_uniform(), storage, *axes),
        "bias_init": annotated(nnx.initializers.zeros_init(), storage, *axes[inputs:]),
    }


def annotated(init: Any, storage: Mapping | None, *axes: str) -> Any:
    """An initializer of an array with these logical axes; without ``storage`` as it is."""
    return init if storage is None else nnx.with_partitioning(init, tuple(storage.spec(axes)))
