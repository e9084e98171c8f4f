"""Pipelines: every schedule, on stages alone and with the other axes; of NNX modules; of a transformer; and starved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.forms.pipelined import NnxPipelined, Pipelined
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.models.scanned_gpt_nnx import NnxScannedGPT
from reference_impl.strategies import (
    parallel_3d,
    parallel_3d_fsdp,
    pipeline_1f1b,
    pipeline_gpipe,
    pipeline_interleaved,
    pipeline_tensor_parallel,
    pipeline_zero_bubble,
)
from reference_impl.truth import Momentum

STAGES, SPLIT_STAGES, CUBE = {"stage": 4}, {"stage": 2, "model": 4}, {"stage": 2, "data": 2, "model": 2}


def cases() -> Iterator[Form]:
    """With eight microbatches, also without JAX's check of what varies; and with two, which is warned of."""
    for page in (pipeline_gpipe.PAGE, pipeline_1f1b.PAGE, pipeline_zero_bubble.PAGE, pipeline_interleaved.PAGE):
        yield Pipelined(page, STAGES, Momentum())
    yield NnxPipelined(pipeline_gpipe.PAGE, STAGES, Momentum())
    yield Pipelined(pipeline_tensor_parallel.PAGE, SPLIT_STAGES, Momentum())
    for page in (parallel_3d.PAGE, parallel_3d_fsdp.PAGE):
        yield Pipelined(page, CUBE, Momentum())
    yield from transformers(Momentum(learning_rate=0.1))
    with warnings.catch_warnings(action="ignore"):
        yield Pipelined(pipeline_gpipe.PAGE, STAGES, Momentum(), variant="starved", microbatches=2)


def transformers(optimizer: Momentum) -> Iterator[Form]:
    """Trained as on one device: in four stages of a block, also of NNX modules, and in two of two split blocks."""
    yield Pipelined(pipeline_gpipe.PAGE, STAGES, optimizer, ScannedGPT(), batch_size=16)
    yield NnxPipelined(pipeline_gpipe.PAGE, STAGES, optimizer, NnxScannedGPT(), batch_size=16)
    yield Pipelined(pipeline_tensor_parallel.PAGE, SPLIT_STAGES, optimizer, ScannedGPT(), batch_size=16)
