"""Perceptrons under modifiers: what a user would add to a strategy, alone and together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference_impl.cases.perceptrons import DATA, ONE
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.linen_form import LinenForm
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.forms.pmap_frameworks import JaxPmap, LinenPmap, NnxPmap
from reference_impl.models import Model
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from reference_impl.modifiers.precision import MixedPrecision, TensorFloat32
from reference_impl.strategies import (
    data_parallel,
    data_parallel_pmap,
    data_parallel_shard_map,
    fsdp,
    fsdp_shard_map,
    single_device,
)
from reference_impl.truth import Momentum

ACCUMULATED, MASKED = Accumulated(MLP()), Masked(MLP())

MIXED = MixedPrecision(MLP(widths=(16, 64, 64, 10)))
"""Small: the wider and the deeper, the more ReLUs flip in bfloat16 one after another, and the less the bound tells."""

COARSE = TensorFloat32(MIXED.model)

ANNOTATED = (
    (data_parallel.PAGE, DATA, ACCUMULATED, "accumulated_naively"),
    (data_parallel.PAGE, DATA, MASKED, "masked"),
    (fsdp.PAGE, DATA, MASKED, "masked"),
    (single_device.PAGE, ONE, MIXED, "bf16"),
    (data_parallel.PAGE, DATA, MIXED, "bf16"),
    (fsdp.PAGE, DATA, MIXED, "bf16"),
    (single_device.PAGE, ONE, COARSE, "tf32"),
    (fsdp.PAGE, DATA, COARSE, "tf32"),
)
FRAMEWORKS: tuple[tuple[Any, Any, Model, str], ...] = (
    (LinenForm, data_parallel.PAGE, MASKED, "masked"),
    (LinenForm, fsdp.PAGE, MIXED, "bf16"),
    (NnxForm, data_parallel.PAGE, MASKED, "masked"),
    (NnxForm, fsdp.PAGE, MIXED, "bf16"),
    (JaxPmap, data_parallel_pmap.PAGE, MASKED, "masked"),
    (JaxPmap, data_parallel_pmap.PAGE, Accumulated(MASKED), "masked_accumulated"),
    (JaxPmap, data_parallel_pmap.PAGE, MIXED, "bf16"),
    (LinenPmap, data_parallel_pmap.PAGE, Accumulated(MASKED), "masked_accumulated"),
    (NnxPmap, data_parallel_pmap.PAGE, Accumulated(MASKED), "masked_accumulated"),
)
MANUAL = (
    (data_parallel_shard_map.PAGE, ACCUMULATED, "accumulated"),
    (fsdp_shard_map.PAGE, ACCUMULATED, "accumulated"),
    (data_parallel_shard_map.PAGE, MASKED, "masked"),
    (data_parallel_shard_map.PAGE, Accumulated(MASKED), "masked_accumulated"),
    (data_parallel_shard_map.PAGE, Accumulated(MIXED), "bf16_accumulated"),
    (fsdp_shard_map.PAGE, Accumulated(MIXED), "bf16_accumulated"),
)


def cases() -> Iterator[Form]:
    """Each with SGD and momentum, on eight devices or on one."""
    for page, axes, network, variant in ANNOTATED:
        yield JaxForm(page, axes, Momentum(), network, variant=variant)
    for form, page, modified, variant in FRAMEWORKS:
        yield form(page, DATA, Momentum(), modified, variant=variant)
    for page, network, variant in MANUAL:
        yield Manual(page, DATA, Momentum(), network, variant=variant)
