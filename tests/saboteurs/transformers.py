"""Faults of transformers: in what attends to what, what is normalised together, and what is reduced how often."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint

from reference_impl.forms.annotated import Annotated, JaxForm
from reference_impl.mapping import Mapping
from reference_impl.models.gpt import GPT
from reference_impl.models.layout import Whole
from reference_impl.strategies import data_parallel, fsdp_tensor_parallel, single_device, tensor_parallel
from tests.saboteurs.planting import BOTH, DATA, MODEL, ONE, plant

TALL = {"data": 4, "model": 2}


class LooksAhead(GPT):
    """A language model that sees the token that it is to predict."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """No causal mask."""
        p = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) / self.head_dim**0.5)
        return jnp.einsum("bhts,bshk->bthk", p, v)


class NormalisesShards(GPT):
    """Statistics of what one device of the tensor axis would hold of the residual stream."""

    def normalise(self, norm: Any, x: Any) -> Any:
        """Each part by its own mean and variance."""
        parts = (jax.sharding.get_abstract_mesh().shape["model"], -1)
        split = {name: leaf.reshape(parts) for name, leaf in norm.items()}
        return super().normalise(split, x.reshape(*x.shape[:-1], *parts)).reshape(x.shape)


def computing(layout: Annotated) -> type[JaxForm]:
    """A form whose activations are laid out otherwise than its page says."""

    class Computing(JaxForm):
        def forward(self, parameters: Any, batch: Any) -> Any:
            in_use = with_sharding_constraint(parameters, layout.compute.specs(self.network.axes))
            return self.network.loss(in_use, batch, layout)

    return Computing


class OneByOne(Annotated):
    """Query, key and value as three products, as attention modules have them."""

    products = Whole.products


class Unshared(Annotated):
    """A token table that is looked up and multiplied with as if these were two."""

    share, use = Whole.share, Whole.use


def of_gpt(form: type[JaxForm], network: GPT | None = None) -> Any:
    """The form of a small language model."""
    return partial(form, network=network or GPT(blocks=1), batch_size=16)


SWAPPED = Annotated(Mapping(batch="model", heads="data", mlp="data"))

plant("healthy_gpt", of_gpt(JaxForm), fsdp_tensor_parallel, BOTH)
plant("looks_ahead", of_gpt(JaxForm, LooksAhead(blocks=1)), single_device, ONE, "NUM-1", "NUM-2", "NUM-4")
for mesh in (BOTH, TALL):
    form = of_gpt(JaxForm, NormalisesShards(blocks=1))
    plant("normalises_shards", form, fsdp_tensor_parallel, mesh, "NUM-2", "NUM-4", "SHD-7")
plant("activations_over_data", of_gpt(computing(SWAPPED)), fsdp_tensor_parallel, BOTH, "COM-5", "COM-6", "COM-11")
form = of_gpt(computing(OneByOne(tensor_parallel.COMPUTE)))
plant("input_reduced_three_times", form, tensor_parallel, MODEL, "COM-5", "COM-11")
form = of_gpt(computing(Unshared(data_parallel.COMPUTE)))
plant("table_reduced_twice", form, data_parallel, DATA, "COM-2", "COM-11")
