"""The strategies that the operators are tried on: each page of the book once, on a small model, and its modifiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import reference_impl
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.drawing import Drawing
from reference_impl.forms.manual import Manual
from reference_impl.forms.pipelined import Pipelined
from reference_impl.models.batch_norm_cnn import BatchNormCNN
from reference_impl.models.gpt import GPT
from reference_impl.models.gpt_flax import FlaxGPT
from reference_impl.models.mlp import MLP
from reference_impl.models.mlp_columns import ColumnMLP
from reference_impl.models.moe import MoE
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.models.stacked_mlp import StackedMLP
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import data_parallel, data_parallel_shard_map, fsdp
from reference_impl.truth import Adam, Momentum
from tests.saboteurs.planting import DATA

PERCEPTRON = MLP(widths=(32, 16, 64, 10))
BLOCK = GPT(vocab=24, length=8, embed=16, head_dim=4, mlp=32, blocks=1)
EXPERTS = MoE(features=32, width=16, hidden=32)
COLUMNS = ColumnMLP(widths=(32, 64, 64, 8))
SCANNED = Rematerialised(ScannedGPT(vocab=24, length=8, embed=16, head_dim=4, mlp=32, blocks=2))
SMALL = {
    "mlp": PERCEPTRON,
    "column_mlp": COLUMNS,
    "gpt_block": BLOCK,
    "flax_gpt_block": FlaxGPT(**vars(BLOCK) | {"dropout": 0.1}),
    "moe": EXPERTS,
    "scanned_gpt": SCANNED,
    "batch_norm_cnn": BatchNormCNN(channels=(3, 4, 8)),
}


def stacked(depths: int) -> StackedMLP:
    """One pair of layers for each chunk of a pipeline, as wide as the book's: MEM-5 is about their activations."""
    return StackedMLP(widths=(64, 128, *(32, 128) * depths, 10))


def bases() -> Iterator[Form]:
    """Without a fault."""
    plainest_first = sorted(reference_impl.strategies(), key=lambda form: (form.framework != "jax", form.variant != ""))
    pages: dict[str, Form] = {}
    for form in plainest_first:
        if form.model in {*SMALL, StackedMLP.name}:
            pages.setdefault(form.name, form)
    for form in pages.values():
        small = stacked(form.timetable.depths) if isinstance(form, Pipelined) else SMALL[form.model]
        yield replace(form, network=small)
    yield JaxForm(fsdp.PAGE, DATA, Adam(), PERCEPTRON, variant="adam")
    yield Manual(data_parallel_shard_map.PAGE, DATA, Momentum(), Accumulated(PERCEPTRON), variant="accumulated")
    yield Manual(data_parallel_shard_map.PAGE, DATA, Momentum(), Masked(PERCEPTRON), variant="masked")
    yield Drawing(data_parallel.PAGE, DATA, Adam(), replace(BLOCK, dropout=0.1), variant="dropout", batch_size=16)
