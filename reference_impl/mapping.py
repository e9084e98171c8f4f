"""Logical axes to mesh axes: the one vocabulary that says every annotated strategy.

A model names the logical axes of each array (``kernel: (embed, mlp)``); a `Mapping` says which mesh axis splits
each of them, if any. A strategy is three mappings: compute, parameters at rest, optimizer state at rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

Axes = tuple[str, ...]


class Mapping:
    """Which mesh axis splits a logical axis: ``Mapping(batch="data", mlp="model")``. The unnamed are not split."""

    def __init__(self, **mesh_axis: str) -> None:
        self.mesh_axis = mesh_axis

    def __str__(self) -> str:
        return ", ".join(f"{logical}→{physical}" for logical, physical in self.mesh_axis.items()) or "whole"

    def spec(self, axes: Axes) -> PartitionSpec:
        """The ``PartitionSpec`` of an array with these logical axes.

        Raises ``ValueError`` where two of them land on one mesh axis: no device could hold such a shard.
        """
        placed = [self.mesh_axis.get(axis) for axis in axes]
        for physical in placed:
            if physical is not None and placed.count(physical) > 1:
                both = " and ".join(axis for axis in axes if self.mesh_axis.get(axis) == physical)
                raise ValueError(
                    f"logical axes {both} of one array {axes} both land on mesh axis {physical!r}: "
                    f"map at most one of them to it ({self})"
                )
        return PartitionSpec(*placed)

    def specs(self, axes: Any) -> Any:
        """`spec` of every leaf of a nested dict of logical axes."""
        return jax.tree.map(self.spec, axes, is_leaf=lambda node: isinstance(node, tuple))


def make_mesh(devices: Sequence[Any], axes: dict[str, int]) -> Mesh:
    """A mesh of the first devices with these axis sizes, compiler-partitioned (``AxisType.Auto``).

    Raises ``ValueError`` where the machine has fewer devices than the axes need.
    """
    needed = int(np.prod(list(axes.values())))
    if needed > len(devices):
        shape = ", ".join(f"{axis}={size}" for axis, size in axes.items())
        raise ValueError(f"a mesh of {shape} needs {needed} devices, this machine offers {len(devices)}")
    grid = np.array(devices[:needed]).reshape(tuple(axes.values()))
    return Mesh(grid, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
