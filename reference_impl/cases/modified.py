"""Perceptrons under modifiers: what a user would add to a strategy, alone and together."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.cases.perceptrons import DATA
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from reference_impl.strategies import data_parallel, data_parallel_shard_map, fsdp, fsdp_shard_map
from reference_impl.truth import Momentum

ACCUMULATED, MASKED = Accumulated(MLP()), Masked(MLP())

CASES = (
    (JaxForm, data_parallel, ACCUMULATED, "accumulated_naively"),
    (Manual, data_parallel_shard_map, ACCUMULATED, "accumulated"),
    (Manual, fsdp_shard_map, ACCUMULATED, "accumulated"),
    (JaxForm, data_parallel, MASKED, "masked"),
    (JaxForm, fsdp, MASKED, "masked"),
    (Manual, data_parallel_shard_map, MASKED, "masked"),
    (Manual, fsdp_shard_map, MASKED, "masked"),
    (Manual, data_parallel_shard_map, Accumulated(MASKED), "masked_accumulated"),
    (Manual, fsdp_shard_map, Accumulated(MASKED), "masked_accumulated"),
)


def cases() -> Iterator[Form]:
    """Each on eight devices, with SGD and momentum."""
    for form, page, network, variant in CASES:
        yield form(page, DATA, Momentum(), network, variant=variant)
