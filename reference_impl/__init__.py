"""The book: every strategy of distributed training on one page, and the truth that judges them all."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.models.mlp import MLP
from reference_impl.strategies import (
    data_parallel,
    data_parallel_shard_map,
    data_tensor_parallel,
    fsdp,
    fsdp_shard_map,
    fsdp_tensor_parallel,
    single_device,
    tensor_parallel,
    tensor_parallel_shard_map,
)
from reference_impl.truth import Adam, AveragedMomentum, Momentum

ANNOTATED = (
    (single_device, {"data": 1}),
    (data_parallel, {"data": 8}),
    (fsdp, {"data": 8}),
    (tensor_parallel, {"model": 8}),
    (data_tensor_parallel, {"data": 2, "model": 4}),
    (fsdp_tensor_parallel, {"data": 2, "model": 4}),
)
MANUAL = (
    (data_parallel_shard_map, {"data": 8}),
    (fsdp_shard_map, {"data": 8}),
    (tensor_parallel_shard_map, {"model": 8}),
)
NNX_ADAM = (
    (data_parallel, {"data": 8}),
    (fsdp, {"data": 8}),
)
REGRESSION = {page: MLP(criterion="mean_squared_error") for page in (single_device, data_tensor_parallel)}
"""Pages whose averaging-momentum form is trained on targets, as the tutorial does that teaches it."""


def strategies() -> Iterator[Form]:
    """Every case of the book. Starts no JAX backend: meshes are made when they are first asked for."""
    for page, axes in (*ANNOTATED, (fsdp_tensor_parallel, {"data": 4, "model": 2})):
        yield JaxForm(page, axes, Momentum())
        yield NnxForm(page, axes, Momentum())
    for page, axes in ANNOTATED:
        yield JaxForm(page, axes, Adam(), variant="adam")
        network = REGRESSION.get(page, MLP())
        yield JaxForm(page, axes, AveragedMomentum(), network, variant="averaged")
        yield NnxForm(page, axes, AveragedMomentum(), network, variant="averaged")
    for page, axes in MANUAL:
        yield Manual(page, axes, Momentum())
    yield Manual(fsdp_shard_map, {"data": 8}, Adam(), variant="adam")
    for page, axes in NNX_ADAM:
        yield NnxForm(page, axes, Adam(), variant="adam")
