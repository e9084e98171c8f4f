"""Faults of kernels that are all split by columns, and of groups of NNX modules."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from flax import nnx

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.hybrid import NnxHybrid
from reference_impl.forms.layouts import Annotated
from reference_impl.models.layout import Layout
from reference_impl.models.mlp_columns import ColumnMLP
from reference_impl.strategies import data_column_parallel, hsdp
from tests.saboteurs.planting import BOTH, plant
from tests.saboteurs.sharded_state import HYBRID


class LeftToTheCompiler(Annotated):
    """Nothing says that activations are gathered: the compiler may gather kernels."""

    leave = Layout.leave


class FirstGroupAlone(NnxHybrid):
    """Groups that were never to wait for each other, and of which the first one's gradients are taken."""

    def loss_and_gradients(self, model: nnx.Module, batch: Any) -> Any:
        """Of the first half of the batch."""
        loss, _ = super().loss_and_gradients(model, batch)
        return loss, self.group.loss_and_gradients(model, jax.tree.map(lambda x: x[: len(x) // 2], dict(batch)))[1]


def columns(layout: type[Annotated]) -> Any:
    """The form of a perceptron that is split by columns, with this layout."""
    return partial(type("Columns", (JaxForm,), {"layout": layout}), network=ColumnMLP())


plant("healthy_columns", columns(Annotated), data_column_parallel.PAGE, BOTH)
plant("left_to_the_compiler", columns(LeftToTheCompiler), data_column_parallel.PAGE, BOTH, "COM-5", "COM-11")
plant("healthy_nnx_groups", NnxHybrid, hsdp.PAGE, HYBRID)
plant("first_group_alone", FirstGroupAlone, hsdp.PAGE, HYBRID, "NUM-2", "NUM-4")
