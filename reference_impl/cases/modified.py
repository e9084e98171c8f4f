"""Perceptrons under modifiers: what a user would add to a strategy, alone and together."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.cases.perceptrons import DATA, ONE
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.strategies import data_parallel, data_parallel_shard_map, fsdp, fsdp_shard_map, single_device
from reference_impl.truth import Momentum

ACCUMULATED, MASKED = Accumulated(MLP()), Masked(MLP())

MIXED = MixedPrecision(MLP(widths=(16, 64, 64, 10)))
"""Small: the wider and the deeper, the more ReLUs flip in bfloat16 one after another, and the less the bound tells."""

CASES = (
    (JaxForm, data_parallel, ACCUMULATED, "accumulated_naively"),
    (Manual, data_parallel_shard_map, ACCUMULATED, "accumulated"),
    (Manual, fsdp_shard_map, ACCUMULATED, "accumulated"),
    (JaxForm, data_parallel, MASKED, "masked"),
    (JaxForm, fsdp, MASKED, "masked"),
    (Manual, data_parallel_shard_map, MASKED, "masked"),
    (Manual, data_parallel_shard_map, Accumulated(MASKED), "masked_accumulated"),
    (JaxForm, single_device, MIXED, "bf16"),
    (JaxForm, data_parallel, MIXED, "bf16"),
    (JaxForm, fsdp, MIXED, "bf16"),
    (Manual, data_parallel_shard_map, Accumulated(MIXED), "bf16_accumulated"),
    (Manual, fsdp_shard_map, Accumulated(MIXED), "bf16_accumulated"),
)


def cases() -> Iterator[Form]:
    """Each with SGD and momentum, on eight devices or on one."""
    for form, page, network, variant in CASES:
        yield form(page, ONE if page is single_device else DATA, Momentum(), network, variant=variant)
