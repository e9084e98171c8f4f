"""The transformer scanned over its blocks, each of which the backward pass recomputes: as large ones are trained.

A block gathers its own parameters in each trip, forward and backward, and scatters their gradients in the same trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.hybrid import Hybrid
from reference_impl.forms.manual import Manual
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    fsdp_blockwise_shard_map,
    fsdp_tensor_parallel,
    fsdp_tensor_parallel_blockwise_shard_map,
    hsdp,
    hsdp_blockwise_shard_map,
    single_device,
)
from reference_impl.truth import Momentum

ONE, DATA, WIDE, SLICES = {"data": 1}, {"data": 8}, {"data": 2, "model": 4}, {"replica": 2, "data": 4}
CASES: tuple[tuple[Any, Any, dict[str, int]], ...] = (
    (JaxForm, single_device.PAGE, ONE),
    (JaxForm, data_parallel.PAGE, DATA),
    (JaxForm, fsdp.PAGE, DATA),
    (JaxForm, fsdp_tensor_parallel.PAGE, WIDE),
    (Hybrid, hsdp.PAGE, SLICES),
    (Manual, fsdp_blockwise_shard_map.PAGE, DATA),
    (Manual, fsdp_tensor_parallel_blockwise_shard_map.PAGE, WIDE),
    (Manual, hsdp_blockwise_shard_map.PAGE, SLICES),
)


def cases() -> Iterator[Form]:
    """Annotated and by hand; and on one device, where nothing is gathered, also with all activations kept."""
    optimizer = Momentum(learning_rate=0.1)
    yield JaxForm(single_device.PAGE, ONE, optimizer, ScannedGPT(), batch_size=16)
    for form, page, axes in CASES:
        yield form(page, axes, optimizer, Rematerialised(ScannedGPT()), variant="remat", batch_size=16)
