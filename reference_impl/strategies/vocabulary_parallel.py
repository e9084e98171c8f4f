"""Vocabulary parallel by hand (Megatron): tensor parallel, and the table of tokens is split by its rows.

    parameters       heads→model, mlp→model, vocab→model
    gradients        heads→model, mlp→model, vocab→model
    optimizer state  heads→model, mlp→model, vocab→model
    batch            whole
    forward moves    all-reduce of activations over model
    step moves       all-reduce of activations over model

``tensor_parallel_shard_map``, and no device holds the whole table or all logits of a token. A look-up is the sum of the
devices' look-ups in their own rows. Of its logits each device sends three numbers a token: the largest, the sum of
exponentials, and the label's, if it is one of them (Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter
Language Models Using Model Parallelism").
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import axis_index, pmax, stop_gradient

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Mapping
from reference_impl.models import Model
from reference_impl.models.gpt import GPT
from reference_impl.page import Page
from reference_impl.strategies import tensor_parallel
from reference_impl.strategies.tensor_parallel_shard_map import Megatron, f, g

SPLIT = Mapping(heads="model", mlp="model", vocab="model")

TABLE = Page(
    name="vocabulary_parallel",
    compute=SPLIT,
    parameters=SPLIT,
    gradients=SPLIT,
    optimizer=SPLIT,
    communication=tensor_parallel.PAGE.communication,
)


class OwnRows(Megatron):
    """Each device has its own rows of the table, for the look-up and for the logits."""

    def look_up(self, token_VxD: jax.Array, x_BxT: jax.Array) -> jax.Array:
        """The sum of all devices' look-ups."""
        return g(look_up_own(token_VxD, x_BxT))

    def logits(self, token_VxD: jax.Array, h_BxTxD: jax.Array) -> jax.Array:
        """This device's own logits."""
        return super().logits(token_VxD, f(h_BxTxD))


def look_up_own(token_VxD: jax.Array, x_BxT: jax.Array) -> jax.Array:
    """The embeddings (B, T, D) of the tokens whose rows these are, zero for all others."""
    row_BxT = x_BxT - axis_index("model") * len(token_VxD)
    is_own_BxT = (row_BxT >= 0) & (row_BxT < len(token_VxD))
    return jnp.where(is_own_BxT[..., None], token_VxD[row_BxT], 0)


def cross_entropy(logits_BxTxV: jax.Array, y_BxT: jax.Array) -> jax.Array:
    """The scalar mean over all tokens, from every device's own logits."""
    V = logits_BxTxV.shape[-1]
    is_label_BxTxV = y_BxT[..., None] == axis_index("model") * V + jnp.arange(V)
    largest_BxT = pmax(stop_gradient(logits_BxTxV).max(-1), "model")
    total_BxT = g(jnp.exp(logits_BxTxV - largest_BxT[..., None]).sum(-1))
    label_BxT = g(jnp.where(is_label_BxTxV, logits_BxTxV, 0).sum(-1))
    return (jnp.log(total_BxT) + largest_BxT - label_BxT).mean()


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The loss of the whole batch, which every device sees. Raises ``ValueError`` where the model has another one."""
    if not isinstance(model, GPT) or model.dropout:
        raise ValueError(
            f"vocabulary_parallel computes the mean cross-entropy of a plain GPT without dropout, not the loss of "
            f"{model}: for that one choose tensor_parallel_shard_map, where the model computes it"
        )
    with jax.named_scope("forward"):
        return cross_entropy(model.apply(parameters, batch["x"], OwnRows()), batch["y"])


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Gradients of split parameters are those of this device's shard; the others are equal on all devices already."""
    return jax.value_and_grad(loss, argnums=1)(model, parameters, batch)


PAGE = TABLE.by_hand(loss, loss_and_gradients)
