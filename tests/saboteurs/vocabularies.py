"""Faults of a table of tokens that is split by its rows: whose rows count, and what is summed of everybody's logits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import all_gather, axis_index, pmax, stop_gradient

from reference_impl.models.layout import look_up, tied_head
from reference_impl.strategies import vocabulary_parallel
from reference_impl.strategies.tensor_parallel_shard_map import g
from reference_impl.strategies.vocabulary_parallel import OwnRows, cross_entropy
from tests.saboteurs.planting import MODEL, Unchecked, plant
from tests.saboteurs.transformers import of_gpt


class LooksUpAnything(OwnRows):
    """A device has something to say of tokens that are not its own, too."""

    def look_up(self, token_VxD: Any, x_BxT: Any) -> Any:
        """Of the row that it happens to have there."""
        return g(look_up(token_VxD, x_BxT % len(token_VxD)))


class EntersAlone(OwnRows):
    """The gradient of what the logits are made of is not summed: each device goes on with that of its own."""

    def logits(self, token_VxD: Any, h_BxTxD: Any) -> Any:
        """Without f."""
        return tied_head(token_VxD, h_BxTxD)


class GathersTable(OwnRows):
    """The right logits, of the whole table on every device."""

    def logits(self, token_VxD: Any, h_BxTxD: Any) -> Any:
        """And of them its own."""
        logits = super().logits(all_gather(token_VxD, "model", axis=0, tiled=True), h_BxTxD)
        return jax.lax.dynamic_slice_in_dim(logits, axis_index("model") * len(token_VxD), len(token_VxD), axis=2)


def shifted_by_own(logits: Any, y: Any) -> Any:
    """Every device sums exponentials less its own largest logit."""
    own, count = stop_gradient(logits).max(-1), logits.shape[-1]
    label = jnp.where(y[..., None] == axis_index("model") * count + jnp.arange(count), logits, 0).sum(-1)
    return (jnp.log(g(jnp.exp(logits - own[..., None]).sum(-1))) + pmax(own, "model") - g(label)).mean()


def picks_anything(logits: Any, y: Any) -> Any:
    """Every device adds what it has in the label's column, as if the label were its own."""
    largest = pmax(stop_gradient(logits).max(-1), "model")
    label = jnp.take_along_axis(logits, (y % logits.shape[-1])[..., None], axis=-1)[..., 0]
    return (jnp.log(g(jnp.exp(logits - largest[..., None]).sum(-1))) + largest - g(label)).mean()


def by(layout: type[OwnRows] = OwnRows, entropy: Any = cross_entropy) -> dict[str, Any]:
    """The page's two functions, with another layout or another loss of the logits."""

    def loss(model: Any, parameters: Any, batch: Any) -> Any:
        return entropy(model.apply(parameters, batch["x"], layout()), batch["y"])

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        return jax.value_and_grad(loss, argnums=1)(model, parameters, batch)

    return {"loss": loss, "loss_and_gradients": loss_and_gradients}


for name, members, clauses in (
    ("healthy_vocabulary", by(), ()),
    ("others_rows_looked_up", by(LooksUpAnything), ("NUM-2", "NUM-4")),
    ("logits_enter_alone", by(EntersAlone), ("NUM-2", "NUM-3", "COM-5", "COM-11")),
    ("table_gathered", by(GathersTable), ("COM-10",)),
    ("shifted_by_own_largest", by(entropy=shifted_by_own), ("NUM-2", "NUM-4")),
    ("others_labels_picked", by(entropy=picks_anything), ("NUM-2", "NUM-4")),
):
    plant(name, of_gpt(Unchecked), vocabulary_parallel.PAGE, MODEL, *clauses, **members)
