"""Language models: one transformer under every strategy, and on four meshes with nothing else changed."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.models.gpt import GPT
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
    single_device,
    tensor_parallel,
    tensor_parallel_shard_map,
)
from reference_impl.truth import Momentum

ONE, DATA, MODEL = {"data": 1}, {"data": 8}, {"model": 8}
MESHES = [{"data": data, "model": 8 // data} for data in (4, 2, 1, 8)]
ANNOTATED = (
    (single_device, ONE),
    (data_parallel, DATA),
    (fsdp, DATA),
    *((fsdp_tensor_parallel, mesh) for mesh in MESHES),
)
OPTIMIZER, BATCH = Momentum(learning_rate=0.1), 16


def cases() -> Iterator[Form]:
    """Plain JAX, NNX, and tensor parallelism by hand too."""
    for page, axes in ANNOTATED:
        yield JaxForm(page, axes, OPTIMIZER, GPT(), batch_size=BATCH)
        yield NnxForm(page, axes, OPTIMIZER, GPT(), batch_size=BATCH)
    yield JaxForm(tensor_parallel, MODEL, OPTIMIZER, GPT(), batch_size=BATCH)
    yield Manual(tensor_parallel_shard_map, MODEL, OPTIMIZER, GPT(), batch_size=BATCH)
