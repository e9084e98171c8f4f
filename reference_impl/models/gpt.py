"""A GPT-2 shaped language model in plain JAX: pre-norm blocks of causal attention and a GELU MLP, and a tied head.

Dims: B batch, T length (of queries), S length (of keys), V vocabulary, D embed, H heads, K head_dim, F mlp.

Keys have no bias: it would shift all scores of a query alike, which softmax does not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from meshproof.contract import leaves, nest
from reference_impl.mapping import Axes
from reference_impl.models import Model, Region
from reference_impl.models.layout import Layout
from reference_impl.truth import GPTTruth, Optimizer

EPSILON = 1e-6
"""What layer normalisation adds to the variance."""

SEED = 0
"""The seed of all dropout masks: a mask depends on it, on the number of steps taken, and on the site."""


@dataclass(frozen=True)
class GPT(Model):
    """Sizes by logical axis, the number of blocks, and the share of what each of their layers adds that is dropped.

    The loss is the mean cross-entropy over B·T tokens. With dropout a batch has a third field, the number ``step`` of
    optimizer steps taken before it.
    """

    vocab: int = 96
    length: int = 16
    embed: int = 64
    heads: int = 8
    head_dim: int = 8
    mlp: int = 256
    blocks: int = 2
    dropout: float = 0.0

    key_bias: ClassVar[bool] = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """``gpt``, or ``gpt_block`` where there is but one."""
        return "gpt" if self.blocks > 1 else "gpt_block"

    @property
    def axes(self) -> dict[str, Any]:
        """The canonical parameter tree, with logical axes at its leaves."""
        norm = {"scale": ("embed",), "bias": ("embed",)}
        into_heads = ("embed", "heads", "head_dim")
        block = {
            "norm_1": norm,
            "attention": {
                "query": {"kernel": into_heads, "bias": into_heads[1:]},
                "key": {"kernel": into_heads} | ({"bias": into_heads[1:]} if self.key_bias else {}),
                "value": {"kernel": into_heads, "bias": into_heads[1:]},
                "out": {"kernel": ("heads", "head_dim", "embed"), "bias": ("embed",)},
            },
            "norm_2": norm,
            "linear_1": {"kernel": ("embed", "mlp"), "bias": ("mlp",)},
            "linear_2": {"kernel": ("mlp", "embed"), "bias": ("embed",)},
        }
        return {
            "token_embedding": {"embedding": ("vocab", "embed")},
            "position_embedding": {"embedding": ("position", "embed")},
            **dict.fromkeys(self.segments, block),
            "norm": norm,
        }

    @property
    def shapes(self) -> dict[str, Any]:
        """The canonical parameter tree, with shapes at its leaves."""
        size = vars(self) | {"position": self.length, "layers": self.blocks}
        return nest({path: tuple(size[axis] for axis in axes) for path, axes in leaves(self.axes)})

    @property
    def batch_axes(self) -> dict[str, Axes]:
        """The fields of a batch: tokens x (B, T) and, for each, the next token y (B, T)."""
        return {"x": ("batch", "length"), "y": ("batch", "length")}

    @property
    def segments(self) -> tuple[str, ...]:
        """``block_0``, ``block_1`` and so on."""
        return tuple(f"block_{i}" for i in range(self.blocks))

    @property
    def added_last(self) -> str:
        """The bias of the MLP's way down."""
        return "linear_2/bias"

    @property
    def operands(self) -> dict[Axes, int]:
        """Queries, keys, values, weights, what they make of the values; then what the MLP's two kernels multiply."""
        T, heads = self.length, self.heads * self.head_dim
        return {
            ("length", "heads", "head_dim"): 4 * T * heads,
            ("heads", "length", "positions"): self.heads * T * T,
            ("length", "embed"): T * self.embed,
            ("length", "mlp"): T * self.mlp,
        }

    def regions(self) -> Iterator[Region]:
        """The heads and the MLP of each block, and the vocabulary: the residual stream (T, D) enters and leaves them.

        Of a token's logits three numbers leave the vocabulary: the largest, the sum of exponentials, and the label's.
        """
        stream = self.length * self.embed
        for _ in range(self.blocks):
            yield Region("heads", entered=stream, left=stream, inner=True)
            yield Region("mlp", entered=stream, left=stream)
        yield Region("vocab", entered=stream, left=stream + 3 * self.length)

    @property
    def keys_and_values(self) -> int:
        """The elements of all keys and values of an example: what a ring of devices passes round."""
        return self.blocks * 2 * self.length * self.heads * self.head_dim

    @property
    def products(self) -> int:
        """A token's with each kernel and the tied head; and queries with keys, weights with values, (T, T) each."""
        T, D, heads = self.length, self.embed, self.heads * self.head_dim
        kernels = self.blocks * (4 * D * heads + 2 * D * self.mlp) + self.vocab * D
        return T * kernels + self.blocks * 2 * T * T * heads

    def truth(self, optimizer: Optimizer) -> GPTTruth:
        """The truth of this network."""
        return GPTTruth(optimizer=optimizer, **vars(self))

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, normal embeddings of deviation 0.02, unit scales, zero biases."""
        paths = dict(leaves(self.shapes))
        keys = jax.random.split(key, len(paths))
        return nest({path: init_leaf(path, key, shape) for key, (path, shape) in zip(keys, paths.items(), strict=True)})

    def loss(self, parameters: Mapping[str, Any], batch: Mapping[str, Any], layout: Layout) -> jax.Array:
        """The scalar mean loss of the batch that this program sees, with this step's draws."""
        step = batch["step"] if self.dropout else 0
        return self.mean_loss(self.apply(parameters, batch["x"], layout, step), batch["y"])

    def apply(
        self, parameters: Mapping[str, Any], x_BxT: jax.Array, layout: Layout, step: int | jax.Array = 0
    ) -> jax.Array:
        """Logits (B, T, V)."""
        tokens = layout.share(parameters["token_embedding"]["embedding"], ("vocab", "embed"))
        parameters = {**parameters, "token_embedding": {"embedding": tokens}}
        h_BxTxD = self.through(parameters, self.enter(parameters, x_BxT, layout), layout, step)
        return self.leave(parameters, h_BxTxD, layout)

    def enter(self, parameters: Mapping[str, Any], x_BxT: jax.Array, layout: Layout) -> jax.Array:
        """The residual stream before the first block."""
        token_VxD, position_TxD = (parameters[f"{name}_embedding"]["embedding"] for name in ("token", "position"))
        return layout.stream(layout.look_up(token_VxD, x_BxT) + position_TxD)

    def leave(self, parameters: Mapping[str, Any], h_BxTxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, T, V), by the table that `enter` looks tokens up in."""
        normal_BxTxD = self.normalise(parameters["norm"], h_BxTxD)
        return layout.logits(parameters["token_embedding"]["embedding"], normal_BxTxD)

    def through(
        self, parameters: Mapping[str, Any], h_BxTxD: jax.Array, layout: Layout, step: int | jax.Array = 0
    ) -> jax.Array:
        """The residual stream behind the last block."""
        key = draw_key(step)
        for i, name in enumerate(self.segments):
            h_BxTxD = layout.block(partial(self.run, layout, key, i), parameters[name], self.axes[name], h_BxTxD)
        return h_BxTxD

    def run(self, layout: Layout, key: jax.Array, i: int, block: Mapping[str, Any], h_BxTxD: jax.Array) -> jax.Array:
        """The residual stream behind block i."""
        y_BxTxD = self.attention(block["attention"], self.normalise(block["norm_1"], h_BxTxD), layout)
        h_BxTxD += self.drop(y_BxTxD, key, 2 * i)
        y_BxTxD = self.feed_forward(block, self.normalise(block["norm_2"], h_BxTxD), layout)
        return h_BxTxD + self.drop(y_BxTxD, key, 2 * i + 1)

    def normalise(self, norm: Mapping[str, jax.Array], x_BxTxD: jax.Array) -> jax.Array:
        """Layer normalisation over D."""
        centred_BxTxD = x_BxTxD - x_BxTxD.mean(-1, keepdims=True)
        variance_BxTx1 = jnp.square(centred_BxTxD).mean(-1, keepdims=True)
        return centred_BxTxD * jax.lax.rsqrt(variance_BxTx1 + EPSILON) * norm["scale"] + norm["bias"]

    def attention(self, attention: Mapping[str, Any], x_BxTxD: jax.Array, layout: Layout) -> jax.Array:
        """Multi-head attention; what makes query, key and value of it enters once."""
        query, key, value, out = (attention[name] for name in ("query", "key", "value", "out"))
        kernels = [query["kernel"], key["kernel"], value["kernel"]]
        x_BxTxD = layout.enter(x_BxTxD, "heads")
        q_BxTxHxK, k_BxSxHxK, v_BxSxHxK = layout.products(
            "btd,dhk->bthk", x_BxTxD, kernels, "embed", ("heads", "head_dim")
        )
        if self.key_bias:
            k_BxSxHxK += key["bias"]
        o_BxTxHxK = layout.attend(q_BxTxHxK + query["bias"], k_BxSxHxK, v_BxSxHxK + value["bias"])
        return layout.product("bthk,hkd->btd", o_BxTxHxK, out["kernel"], "heads", ("embed",)) + out["bias"]

    def feed_forward(self, block: Mapping[str, Any], x_BxTxD: jax.Array, layout: Layout) -> jax.Array:
        """The MLP: up to F, GELU, and down again."""
        up, down = block["linear_1"], block["linear_2"]
        z_BxTxF = layout.product("btd,df->btf", layout.enter(x_BxTxD, "mlp"), up["kernel"], "embed", ("mlp",))
        h_BxTxF = jax.nn.gelu(z_BxTxF + up["bias"], approximate=True)
        return layout.product("btf,fd->btd", h_BxTxF, down["kernel"], "mlp", ("embed",)) + down["bias"]

    def drop(self, y_BxTxD: jax.Array, key: jax.Array, site: int) -> jax.Array:
        """Dropout: what is kept, scaled so that the mean stays."""
        if not self.dropout:
            return y_BxTxD
        kept_BxTxD = jax.random.bernoulli(jax.random.fold_in(key, site), 1 - self.dropout, y_BxTxD.shape)
        return jnp.where(kept_BxTxD, y_BxTxD / (1 - self.dropout), 0)

    def mean_loss(self, logits_BxTxV: jax.Array, y_BxT: jax.Array) -> jax.Array:
        """The scalar mean cross-entropy over examples and positions.

        A label's logit is picked by a mask, and not looked up: a look-up's gradient is scattered into zeros, and so
        holds float32 numbers in memory, as many as there are logits.
        """
        is_label_BxTxV = jax.nn.one_hot(y_BxT, self.vocab, dtype=bool)
        label_BxT = jnp.where(is_label_BxTxV, logits_BxTxV, 0).sum(-1)
        return (jax.nn.logsumexp(logits_BxTxV, -1) - label_BxT).mean()


def draw_key(step: int | jax.Array) -> jax.Array:
    """What the dropout masks of a step are drawn from."""
    return jax.random.fold_in(jax.random.key(SEED, impl="threefry2x32"), step)


def init_leaf(path: str, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The start value of one parameter."""
    if path.endswith("embedding"):
        return 0.02 * jax.random.normal(key, shape)
    if not path.endswith("kernel"):
        return jnp.full(shape, 1.0 if path.endswith("scale") else 0.0, jnp.float32)
    inputs = len(shape) - 1 if path.endswith("out/kernel") else 1
    kernel_init = jax.nn.initializers.lecun_uniform(range(inputs), range(inputs, len(shape)))
    return kernel_init(key, shape)
