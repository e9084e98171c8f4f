"""The book as the suites judge it: each page once, in plain JAX, and the single device beside each of their models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import reference_impl
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.models import Model
from reference_impl.models.mlp import MLP
from reference_impl.models.stacked_mlp import StackedMLP
from reference_impl.strategies import single_device
from reference_impl.truth import MLPTruth, Optimizer


@dataclass(frozen=True)
class Unstacked(MLP):
    """The network of `StackedMLP`, layer by layer: one device has no use for stages."""

    name = StackedMLP.name

    def truth(self, optimizer: Optimizer) -> MLPTruth:
        """The truth of the same network."""
        return StackedMLP(self.widths, self.criterion).truth(optimizer)


def strategies() -> Iterator[Form]:
    """The first case of each page, and one on a single device for each model and batch among them."""
    pages: dict[str, Form] = {}
    for form in reference_impl.strategies():
        if form.framework == "jax" and not form.variant:
            pages.setdefault(form.name, form)
    alone = {form.truth: alone_as(form) for form in pages.values()}
    yield from alone.values()
    yield from (form for form in pages.values() if form.page is not single_device.PAGE)


def alone_as(form: Form) -> Form:
    """The same model, batch and optimizer on one device."""
    network: Model = form.network
    if isinstance(network, StackedMLP):
        network = Unstacked(network.widths, network.criterion)
    return JaxForm(single_device.PAGE, {"data": 1}, form.optimizer, network, batch_size=form.batch_size)
