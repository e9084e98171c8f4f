"""Transformers: a language model, one block of it under every strategy and on four meshes, and both modified."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.compat import BARRIERS_HOLD
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.drawing import Drawing, NnxCounting, NnxDrawing
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.models.gpt import GPT
from reference_impl.models.gpt_flax import FlaxGPT
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import (
    context_parallel,
    context_parallel_all_gather,
    context_parallel_all_to_all,
    data_parallel,
    data_row_sharded,
    fsdp,
    fsdp_blockwise_shard_map,
    fsdp_context_parallel,
    fsdp_tensor_parallel,
    sequence_parallel,
    sequence_parallel_collective_matmul,
    sequence_parallel_shard_map,
    single_device,
    tensor_parallel_shard_map,
    vocabulary_parallel,
    zero1,
    zero2,
)
from reference_impl.truth import Adam, Momentum

ONE, PAIR, DATA, MODEL = {"data": 1}, {"data": 2}, {"data": 8}, {"model": 8}
WIDE = {"data": 2, "model": 4}
MESHES = [{"data": data, "model": 8 // data} for data in (2, 1, 4, 8)]
LANGUAGE_MODELS = ((single_device.PAGE, ONE), (data_parallel.PAGE, DATA), (fsdp_tensor_parallel.PAGE, WIDE))
ANNOTATED = (
    (data_parallel.PAGE, DATA),
    (zero1.PAGE, DATA),
    (zero2.PAGE, DATA),
    (fsdp.PAGE, DATA),
    (sequence_parallel.PAGE, WIDE),
    (fsdp_tensor_parallel.PAGE, WIDE),
)
MANUAL = (
    (tensor_parallel_shard_map.PAGE, MODEL),
    (vocabulary_parallel.PAGE, MODEL),
    (sequence_parallel_shard_map.PAGE, WIDE),
    (sequence_parallel_collective_matmul.PAGE, WIDE),
    (context_parallel.PAGE, {"data": 2, "context": 4}),
    (context_parallel_all_gather.PAGE, {"data": 2, "context": 4}),
    (context_parallel_all_to_all.PAGE, {"data": 2, "context": 4}),
    (fsdp_context_parallel.PAGE, {"data": 4, "context": 2}),
)
REMATERIALISED = (
    (JaxForm, single_device.PAGE, ONE),
    (JaxForm, fsdp.PAGE, PAIR),
    (JaxForm, fsdp_tensor_parallel.PAGE, WIDE),
    *([(Manual, fsdp_blockwise_shard_map.PAGE, PAIR)] if BARRIERS_HOLD else []),
)
"""On so few devices that each has more activations than gradients: else a step's peak is not theirs.

By hand only where the compiler does not merge the second gather with the first.
"""
DRAWN = ((single_device.PAGE, ONE), (data_parallel.PAGE, DATA))
SHARDED = [(fsdp_tensor_parallel.PAGE, axes) for axes in MESHES]
OPTIMIZER, BATCH = Momentum(learning_rate=0.1), 16
BLOCK, DROPPED, FLAX = GPT(blocks=1), GPT(blocks=1, dropout=0.1), FlaxGPT(blocks=1, dropout=0.1)


def cases() -> Iterator[Form]:
    """The language model of two blocks; and one block in plain JAX, NNX and by hand, and with dropout."""
    for page, axes in LANGUAGE_MODELS:
        yield JaxForm(page, axes, OPTIMIZER, GPT(), batch_size=BATCH)
    yield Manual(fsdp_blockwise_shard_map.PAGE, PAIR, OPTIMIZER, GPT(), batch_size=BATCH)
    for page, axes in ANNOTATED:
        yield JaxForm(page, axes, OPTIMIZER, BLOCK, batch_size=BATCH)
    for page, axes in SHARDED:
        yield NnxForm(page, axes, OPTIMIZER, BLOCK, batch_size=BATCH)
    for page, axes in MANUAL:
        yield Manual(page, axes, OPTIMIZER, BLOCK, batch_size=BATCH)
    for form, page, axes in REMATERIALISED:
        yield form(page, axes, OPTIMIZER, Rematerialised(GPT()), variant="remat", batch_size=BATCH)
    for page, axes in (*DRAWN, *SHARDED):
        yield Drawing(page, axes, Adam(), DROPPED, variant="dropout", batch_size=BATCH)
    for page, axes in DRAWN:
        yield NnxDrawing(page, axes, Adam(), DROPPED, variant="dropout", batch_size=BATCH)
    for page, axes in ((single_device.PAGE, ONE), *SHARDED):
        yield NnxCounting(page, axes, OPTIMIZER, FLAX, variant="dropout", batch_size=BATCH)
    for axes in MESHES:
        yield NnxCounting(data_row_sharded.PAGE, axes, OPTIMIZER, FLAX, variant="dropout", batch_size=BATCH)
