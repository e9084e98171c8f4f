"""Sequences that are split over devices: ``pytest suites/ --impl tests.healthy.contexts``."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from .language_models import LENGTH, WIDTH, LanguageModel, attention, normalised
from .trainer import WHOLE, moves


class Context(LanguageModel):
    """Every device has a part of each sequence, and gathers all keys and values."""

    name = "context_parallel"
    axes = {"data": 2, "context": 4}
    rows = P("data", "context")
    both = ("data", "context")
    promises = {"explicit": True, "computed": WHOLE}

    @property
    def forward_moves(self):
        """Keys and values of a device's rows."""
        return (moves("all-gather", "activations", (8, LENGTH, 2, WIDTH), over=("context",)), self.metrics)

    @property
    def step_moves(self):
        """And their gradients back."""
        return (
            *self.forward_moves,
            moves("reduce-scatter", "activations", (8, LENGTH, 2, WIDTH), over=("context",)),
            moves("all-reduce", "gradients", *self.shapes.values(), over=self.both),
        )

    metrics = moves("all-reduce", "metrics", (), over=both)

    def mean_loss(self, w, batch):
        """In ``shard_map``."""
        local = jax.shard_map(self.local_loss, mesh=self.mesh, in_specs=(P(), self.rows), out_specs=P())
        return local(w, batch)

    def local_loss(self, w, batch):
        """Of a device's tokens, then the mean of all."""
        return jax.lax.pmean(super().mean_loss(w, batch), self.both)

    def blocks(self, w, x):
        """As the block of one device, but for whom attention sees."""
        q, k, v = jnp.moveaxis(jnp.einsum("bld,dnhk->blnhk", normalised(x, w["scale"]), w["qkv"]), 2, 0)
        x = x + jnp.einsum("blhk,hkd->bld", self.attended(q, k, v), w["attended"])
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"]

    def attended(self, q, k, v):
        """By this device's queries."""
        k, v = jax.lax.all_gather(jnp.stack([k, v]), "context", axis=2, tiled=True)
        return attention(q, k, v, first=jax.lax.axis_index("context") * q.shape[1])


class Ring(Context):
    """Keys and values go around; each device keeps the running maximum and sum of its softmax."""

    name = "ring_attention"
    forward_moves = (
        moves("collective-permute", "activations", (8, 2, 2, WIDTH), over=("context",), times=3),
        Context.metrics,
    )

    @property
    def step_moves(self):
        """The same way back."""
        return (
            moves("collective-permute", "activations", (8, 2, 2, WIDTH), over=("context",), times=6),
            self.metrics,
            moves("all-reduce", "gradients", *self.shapes.values(), over=self.both),
        )

    def attended(self, q, k, v):
        """One turn per device."""
        devices, own = jax.lax.axis_size("context"), jax.lax.axis_index("context")
        here = own * q.shape[1] + jnp.arange(q.shape[1])
        most = jnp.full((*q.shape[:3], 1), -jnp.inf, q.dtype)
        total, result = jnp.zeros_like(most), jnp.zeros_like(q)
        keys_and_values = jnp.stack([k, v])
        for turn in range(devices):
            k, v = keys_and_values
            there = (own - turn) % devices * k.shape[1] + jnp.arange(k.shape[1])
            scores = jnp.einsum("bqhd,bkhd->bqhk", q, k) * q.shape[-1] ** -0.5
            scores = jnp.where(here[:, None, None] >= there, scores, -1e9)
            new = jnp.maximum(most, scores.max(-1, keepdims=True))
            weights, kept = jnp.exp(scores - new), jnp.exp(most - new)
            total = total * kept + weights.sum(-1, keepdims=True)
            result = result * kept + jnp.einsum("bqhk,bkhd->bqhd", weights, v)
            most = new
            if turn < devices - 1:
                around = [(device, (device + 1) % devices) for device in range(devices)]
                keys_and_values = jax.lax.ppermute(keys_and_values, "context", around)
        return result / total


class Positions(Context):
    """A learned table of positions, scaled, of which each device takes the rows of its own tokens."""

    name = "context_positions"
    shapes = Context.shapes | {"positions": (LENGTH, WIDTH)}

    @property
    def step_moves(self):
        """The gradients of rows over the batch; then each device adds its table to those of the others."""
        return (
            *self.forward_moves,
            moves("reduce-scatter", "activations", (8, LENGTH, 2, WIDTH), over=("context",)),
            moves("all-reduce", "gradients", *Context.shapes.values(), over=self.both),
            moves("all-reduce", "gradients", (LENGTH // 4, WIDTH), over=("data",)),
            moves("all-reduce", "gradients", (LENGTH, WIDTH), over=("context",)),
        )

    def blocks(self, w, x):
        """Of tokens that know where they are."""
        first = jax.lax.axis_index("context") * x.shape[1]
        return super().blocks(w, x + 0.5 * self.rows_from(w["positions"], first, x.shape[1]))

    def rows_from(self, table, first, count):
        """By their numbers: the gradient is scattered into zeros."""
        return table[first + jnp.arange(count)]


class SlicedPositions(Positions):
    """By a slice: the gradient is written into zeros, and their sum is a gather to a compiler."""

    name = "context_sliced_positions"

    def rows_from(self, table, first, count):
        """In one piece."""
        return jax.lax.dynamic_slice_in_dim(table, first, count)


def strategies():
    """All of them."""
    return [Context(), Ring(), Positions(), SlicedPositions()]
