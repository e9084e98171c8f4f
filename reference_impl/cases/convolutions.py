"""Convolutional networks under data parallelism, replicated and fully sharded."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.evaluated import EvaluatedForm
from reference_impl.forms.keeping import NnxAveraging, NnxAveragingPmap
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.forms.pmap_frameworks import JaxPmap, NnxPmap
from reference_impl.models.batch_norm_cnn import BatchNormCNN
from reference_impl.models.cnn import CNN
from reference_impl.strategies import (
    data_parallel,
    data_parallel_pmap,
    fsdp,
    single_device,
    sync_batch_norm,
    sync_batch_norm_pmap,
)
from reference_impl.truth import Momentum


def cases() -> Iterator[Form]:
    """Plain JAX and NNX: annotated, and by ``pmap``."""
    for page, axes in ((single_device.PAGE, {"data": 1}), (data_parallel.PAGE, {"data": 8}), (fsdp.PAGE, {"data": 8})):
        plain = EvaluatedForm if page is data_parallel.PAGE else JaxForm
        yield plain(page, axes, Momentum(), CNN())
        yield NnxForm(page, axes, Momentum(), CNN())
    yield JaxPmap(data_parallel_pmap.PAGE, {"data": 8}, Momentum(), CNN())
    yield NnxPmap(data_parallel_pmap.PAGE, {"data": 8}, Momentum(), CNN())
    yield NnxAveraging(single_device.PAGE, {"data": 1}, Momentum(), BatchNormCNN())
    yield NnxAveraging(sync_batch_norm.PAGE, {"data": 8}, Momentum(), BatchNormCNN())
    yield NnxAveragingPmap(sync_batch_norm_pmap.PAGE, {"data": 8}, Momentum(), BatchNormCNN())
