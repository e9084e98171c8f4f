"""Multilayer perceptrons under every strategy that splits batches, parameters and activations."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.compat import NNX_OPTIMIZER_SHARDING
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.evaluated import EvaluatedForm
from reference_impl.forms.explicit import Explicit
from reference_impl.forms.hybrid import Hybrid, NnxHybrid
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm, RulesForm, VariablesForm
from reference_impl.models.mlp import MLP
from reference_impl.models.mlp_columns import ColumnMLP
from reference_impl.strategies import (
    data_column_parallel,
    data_parallel,
    data_parallel_shard_map,
    data_tensor_parallel,
    fsdp,
    fsdp_shard_map,
    fsdp_tensor_parallel,
    fsdp_tensor_parallel_shard_map,
    hsdp,
    hsdp_shard_map,
    single_device,
    tensor_parallel,
    tensor_parallel_shard_map,
    zero1,
    zero1_shard_map,
    zero2,
    zero2_shard_map,
)
from reference_impl.truth import Adam, AveragedMomentum, Momentum

ONE, DATA, MODEL = {"data": 1}, {"data": 8}, {"model": 8}
HYBRID = {"replica": 2, "data": 4}
WIDE, TALL = {"data": 2, "model": 4}, {"data": 4, "model": 2}

ANNOTATED = (
    (single_device.PAGE, ONE),
    (data_parallel.PAGE, DATA),
    (zero1.PAGE, DATA),
    (zero2.PAGE, DATA),
    (fsdp.PAGE, DATA),
    (tensor_parallel.PAGE, MODEL),
    (data_tensor_parallel.PAGE, WIDE),
    (fsdp_tensor_parallel.PAGE, WIDE),
    (fsdp_tensor_parallel.PAGE, TALL),
)
MANUAL = (
    (data_parallel_shard_map.PAGE, DATA),
    (zero1_shard_map.PAGE, DATA),
    (zero2_shard_map.PAGE, DATA),
    (fsdp_shard_map.PAGE, DATA),
    (hsdp_shard_map.PAGE, HYBRID),
    (tensor_parallel_shard_map.PAGE, MODEL),
    (fsdp_tensor_parallel_shard_map.PAGE, WIDE),
)
EXPLICIT = (
    (data_parallel.PAGE, DATA),
    (zero1.PAGE, DATA),
    (zero2.PAGE, DATA),
    (fsdp.PAGE, DATA),
    (tensor_parallel.PAGE, MODEL),
    (fsdp_tensor_parallel.PAGE, WIDE),
)
ADAM = (
    (JaxForm, single_device.PAGE, ONE),
    (JaxForm, data_parallel.PAGE, DATA),
    (JaxForm, fsdp.PAGE, DATA),
    (JaxForm, fsdp_tensor_parallel.PAGE, WIDE),
    (NnxForm, data_parallel.PAGE, DATA),
    (NnxForm, fsdp.PAGE, DATA),
)
AVERAGED = ((single_device.PAGE, ONE), (data_tensor_parallel.PAGE, WIDE))
COLUMNS = ((single_device.PAGE, ONE), (data_column_parallel.PAGE, WIDE))
"""Trained with the averaging momentum, and on targets, as the tutorial does that teaches it."""


def cases() -> Iterator[Form]:
    """Plain JAX, NNX and by hand; SGD with momentum in both its forms, and Adam."""
    for page, axes in ANNOTATED:
        plain = EvaluatedForm if page is data_parallel.PAGE else JaxForm
        yield plain(page, axes, Momentum())
        if page.optimizer == page.parameters or NNX_OPTIMIZER_SHARDING:
            yield NnxForm(page, axes, Momentum())
    yield VariablesForm(fsdp.PAGE, DATA, Momentum(), variant="out_sharding")
    yield RulesForm(fsdp_tensor_parallel.PAGE, WIDE, Momentum(), variant="sharding_rules")
    for hybrid in (Hybrid, NnxHybrid):
        yield hybrid(hsdp.PAGE, HYBRID, Momentum())
    for page, axes in EXPLICIT:
        yield Explicit(page, axes, Momentum(), variant="explicit")
    for page, axes in MANUAL:
        yield Manual(page, axes, Momentum())
    for form, page, axes in ADAM:
        yield form(page, axes, Adam(), variant="adam")
    yield Manual(fsdp_shard_map.PAGE, DATA, Adam(), variant="adam")
    for page, axes in AVERAGED:
        for framework in (JaxForm, NnxForm):
            yield framework(page, axes, AveragedMomentum(), MLP(criterion="mean_squared_error"), variant="averaged")
    for page, axes in COLUMNS:
        for framework in (JaxForm, NnxForm):
            yield framework(page, axes, AveragedMomentum(), ColumnMLP())
