"""Annotated strategies on explicit mesh axes: every array's layout is part of its type, and the compiler chooses none.

Where annotated code constrains, this code reshards; a product that sums over a split axis states its output's layout.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from meshproof.contract import Tree
from reference_impl.compat import reshard
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import OnMesh
from reference_impl.forms.layouts import Annotated
from reference_impl.mapping import Axes


class Typed(Annotated):
    """Activations resharded, and products typed, by a compute mapping."""

    def reshard(self, parameters: Tree, axes: Tree) -> Any:
        """Parameters, resharded to the compute mapping."""
        return reshard(parameters, self.compute.specs(axes))

    def product(self, subscripts: str, x: jax.Array, w: jax.Array, over: str, axes: Axes) -> jax.Array:
        """The einsum, with the layout in which its result leaves."""
        return jnp.einsum(subscripts, x, w, out_sharding=self.spec_of_product(len(subscripts.split("->")[1]), axes))

    def place(self, x: jax.Array, spec: PartitionSpec) -> jax.Array:
        """``x`` resharded."""
        return reshard(x, spec)


class Explicit(JaxForm):
    """The plain JAX form with ``AxisType.Explicit``."""

    axis_type: ClassVar[AxisType] = AxisType.Explicit
    layout: ClassVar[type[Annotated]] = Typed

    @cached_property
    def init_parameters(self) -> OnMesh:
        """Key to placed parameters. Drawn on automatic axes: on explicit ones every device would draw all of them."""
        return self.compile(jax.sharding.auto_axes(self.network.init, out_sharding=self.state_specs.parameters))
