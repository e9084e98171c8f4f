"""Flax Linen, which holds its own: the MLP under the pages that its logical axes can say."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.linen_form import LinenForm
from reference_impl.forms.pmap_frameworks import JaxPmap, LinenPmap, ScoredLinenPmap
from reference_impl.models.mlp import MLP
from reference_impl.strategies import (
    data_parallel,
    data_parallel_pmap,
    data_tensor_parallel,
    fsdp,
    fsdp_tensor_parallel,
    single_device,
    tensor_parallel,
)
from reference_impl.truth import Momentum

ANNOTATED = (
    (single_device.PAGE, {"data": 1}),
    (data_parallel.PAGE, {"data": 8}),
    (fsdp.PAGE, {"data": 8}),
    (tensor_parallel.PAGE, {"model": 8}),
    (fsdp_tensor_parallel.PAGE, {"data": 2, "model": 4}),
)
WIDE = MLP(widths=(64, 8192, 10))
"""The large model of the tutorial "Distributed Training with Flax", whose 8192 columns its mesh of 2×4 is for.

With inputs of 64 for its 784, which would only make 25 MB of each copy.
"""


def cases() -> Iterator[Form]:
    """The annotated pages; ``pmap`` and the wide model, beside their plain JAX forms."""
    for page, axes in ANNOTATED:
        yield LinenForm(page, axes, Momentum())
    yield JaxPmap(data_parallel_pmap.PAGE, {"data": 8}, Momentum())
    yield LinenPmap(data_parallel_pmap.PAGE, {"data": 8}, Momentum())
    yield ScoredLinenPmap(data_parallel_pmap.PAGE, {"data": 8}, Momentum(), variant="accuracy")
    for form in (JaxForm, LinenForm):
        yield form(data_tensor_parallel.PAGE, {"data": 2, "model": 4}, Momentum(), WIDE, variant="wide")
