"""The mixture of experts: whole, with its tokens split, and with its experts split too."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.models.moe import MoE
from reference_impl.strategies import (
    data_parallel,
    expert_fsdp,
    expert_fsdp_shard_map,
    expert_parallel,
    expert_parallel_shard_map,
    single_device,
)
from reference_impl.truth import Momentum

EXPERT, WIDE, TALL = {"expert": 8}, {"data": 2, "expert": 4}, {"data": 4, "expert": 2}

ANNOTATED = (
    (single_device.PAGE, {"data": 1}),
    (data_parallel.PAGE, {"data": 8}),
    (expert_parallel.PAGE, EXPERT),
    (expert_fsdp.PAGE, WIDE),
    (expert_fsdp.PAGE, TALL),
)
MANUAL = ((expert_parallel_shard_map.PAGE, EXPERT), (expert_fsdp_shard_map.PAGE, WIDE))


def cases() -> Iterator[Form]:
    """Plain JAX and by hand, SGD with momentum."""
    for page, axes in ANNOTATED:
        yield JaxForm(page, axes, Momentum(), MoE())
    for page, axes in MANUAL:
        yield Manual(page, axes, Momentum(), MoE())
