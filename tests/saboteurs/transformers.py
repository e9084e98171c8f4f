"""Faults of transformers: in what attends to what, what is normalised together, and what is reduced how often."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from reference_impl.compat import BARRIERS_HOLD
from reference_impl.evaluation import totals
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.drawing import Drawing, NnxCounting
from reference_impl.forms.layouts import Annotated
from reference_impl.forms.manual import Manual
from reference_impl.mapping import FirstDimension, Mapping
from reference_impl.models.gpt import GPT
from reference_impl.models.gpt_flax import FlaxGPT
from reference_impl.models.layout import Layout
from reference_impl.modifiers import Modified
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import (
    data_parallel,
    data_row_sharded,
    fsdp,
    fsdp_shard_map,
    fsdp_tensor_parallel,
    single_device,
    tensor_parallel,
)
from reference_impl.truth import Adam
from tests.saboteurs.planting import BOTH, DATA, MODEL, ONE, plant

TALL = {"data": 4, "model": 2}
PAIR = {"data": 2}
SLIM = GPT(vocab=32, embed=16, head_dim=2, mlp=64)
"""Two blocks of few parameters: what a step holds is activations."""


class NormalisesShards(GPT):
    """Statistics of what one device of the tensor axis would hold of the residual stream."""

    def normalise(self, norm: Any, x: Any) -> Any:
        """Each part by its own mean and variance."""
        parts = (jax.sharding.get_abstract_mesh().shape["model"], -1)
        split = {name: leaf.reshape(parts) for name, leaf in norm.items()}
        return super().normalise(split, x.reshape(*x.shape[:-1], *parts)).reshape(x.shape)


class DrawsPerDevice(GPT):
    """Dropout masks that depend on how many devices share a batch."""

    def drop(self, y: Any, key: Any, site: int) -> Any:
        """Every device folds its own position into the key."""
        shares = jax.sharding.get_abstract_mesh().shape["data"]
        shape = (y.shape[0] // shares, *y.shape[1:])

        def draw(key: Any) -> Any:
            own = jax.random.fold_in(jax.random.fold_in(key, site), jax.lax.axis_index("data"))
            return jax.random.bernoulli(own, 1 - self.dropout, shape)

        kept = jax.shard_map(draw, in_specs=PartitionSpec(), out_specs=PartitionSpec("data"))(key)
        return jnp.where(kept, y / (1 - self.dropout), 0)


class SwapsAxes(JaxForm):
    """Examples and heads split over each other's mesh axis."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """Activations are reduced over data, parameters gathered over model."""
        return self.loss_by(Mapping(batch="model", heads="data", mlp="data"), parameters, batch)


class LooksAhead(Annotated):
    """Attention that sees the token that the model is to predict."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """No causal mask."""
        p = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5)
        return jnp.einsum("bhts,bshk->bthk", p, v)


class OneByOne(Annotated):
    """Query, key and value as three products, as attention modules have them."""

    products = Layout.products


class Unshared(Annotated):
    """A token table that is looked up and multiplied with as if these were two."""

    share, use = Layout.share, Layout.use


class KeepsAll(Rematerialised):
    """Blocks whose activations are all kept, and whose parameters are."""

    reshard, apply = Modified.reshard, Modified.apply


class ForgetsItsCalls(NnxCounting):
    """Layers that count their calls in a copy of the model, which is gone after the step."""

    def loss_and_gradients(self, model: Any, batch: Any) -> Any:
        """Each step draws what the first drew."""
        return super().loss_and_gradients(nnx.clone(model), batch)


class TrainsInEval(NnxCounting):
    """A model that was evaluated, and is trained on."""

    def create_model(self, key: Any) -> Any:
        """Nothing is dropped."""
        model = super().create_model(key)
        model.eval()
        return model


class WidthsLeftWhole(NnxCounting):
    """Annotated by heads and hidden units alone."""

    def module(self, annotations: Any, key: Any) -> Any:
        """Norms, and kernels whose first dimension is the width, are on every device."""
        return super().module(FirstDimension(heads="model", mlp="model"), key)


class EvaluatesInTraining(NnxCounting):
    """An evaluation that drops as training does: nobody called ``eval``."""

    @cached_property
    def totals(self) -> Any:
        """Of a model as it was trained."""
        return self.compile(lambda state, batch: totals(self.outputs(nnx.clone(state[0]), batch), batch), nnx.jit)


def with_dropout(network: GPT) -> Any:
    """The form of a language model that draws, trained by Adam."""
    return lambda page, axes, _: Drawing(page, axes, Adam(), network, variant="dropout", batch_size=16)


def of_gpt(form: Any, network: GPT | None = None) -> Any:
    """The form of a small language model."""
    return partial(form, network=network or GPT(blocks=1), batch_size=16)


def laid_out_by(layout: type[Annotated]) -> Any:
    """The form of a small language model whose activations are laid out otherwise than the book's."""
    return of_gpt(type("LaidOut", (JaxForm,), {"layout": layout}))


plant("healthy_gpt", of_gpt(JaxForm), fsdp_tensor_parallel.PAGE, BOTH)
plant("looks_ahead", laid_out_by(LooksAhead), single_device.PAGE, ONE, "NUM-1", "NUM-4")
form = of_gpt(JaxForm, NormalisesShards(blocks=1))
plant("normalises_shards", form, fsdp_tensor_parallel.PAGE, BOTH, "NUM-2", "NUM-4", "SHD-7")
plant("normalises_shards", form, fsdp_tensor_parallel.PAGE, TALL, "NUM-2", "NUM-4", "SHD-7", another_case=True)
plant("examples_and_heads_swapped", of_gpt(SwapsAxes), fsdp_tensor_parallel.PAGE, BOTH, "COM-5", "COM-6", "COM-11")
plant("input_reduced_three_times", laid_out_by(OneByOne), tensor_parallel.PAGE, MODEL, "COM-5", "COM-11")
plant("table_reduced_twice", laid_out_by(Unshared), data_parallel.PAGE, DATA, "COM-2", "COM-11")
plant("healthy_dropout", with_dropout(GPT(blocks=1, dropout=0.1)), single_device.PAGE, ONE)
form = with_dropout(DrawsPerDevice(blocks=1, dropout=0.1))
plant("draws_per_device", form, data_parallel.PAGE, DATA, "NUM-9", "NUM-2", "NUM-4")
counting = {"network": FlaxGPT(blocks=1, dropout=0.1), "variant": "dropout", "batch_size": 16}
plant("forgets_its_calls", partial(ForgetsItsCalls, **counting), fsdp_tensor_parallel.PAGE, BOTH, "NUM-3", "NUM-9")
plant("widths_left_whole", partial(WidthsLeftWhole, **counting), data_row_sharded.PAGE, BOTH, "SHD-1", "SHD-2", "MEM-1")
plant("healthy_counting", partial(NnxCounting, **counting), fsdp_tensor_parallel.PAGE, BOTH)
plant("evaluates_in_training", partial(EvaluatesInTraining, **counting), fsdp_tensor_parallel.PAGE, BOTH, "MSK-1")
plant("trains_in_eval", partial(TrainsInEval, **counting), fsdp_tensor_parallel.PAGE, BOTH, "NUM-2", "NUM-4")
plant("healthy_slim_gpt", of_gpt(JaxForm, SLIM), fsdp.PAGE, PAIR)
in_vain = () if BARRIERS_HOLD else ("MEM-6",)
plant("healthy_rematerialised", of_gpt(JaxForm, Rematerialised(SLIM)), fsdp.PAGE, PAIR, *in_vain)
plant("everything_kept", of_gpt(JaxForm, KeepsAll(SLIM)), fsdp.PAGE, PAIR, "MEM-6", "COM-4", "COM-11")
plant("healthy_slim_gpt", of_gpt(JaxForm, SLIM), single_device.PAGE, ONE, another_case=True)
plant("everything_kept_on_one_device", of_gpt(JaxForm, KeepsAll(SLIM)), single_device.PAGE, ONE, "MEM-6")
plant("gathered_before_blocks", of_gpt(Manual, Rematerialised(SLIM)), fsdp_shard_map.PAGE, PAIR, "COM-4", "COM-11")
