"""Logical axes to mesh axes: the one vocabulary that says every annotated strategy.

A model names the logical axes of each array (``kernel: (embed, mlp)``); a `Mapping` says which mesh axes split each of
them, if any. A strategy is such mappings: for compute, and for parameters, gradients and optimizer state at rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from meshproof.contract import leaves, nest

Axes = tuple[str, ...]
MeshAxes = tuple[str, ...]


@dataclass(init=False)
class Mapping:
    """Which mesh axes split a logical axis: ``Mapping(batch=("replica", "data"), mlp="model")``.

    Several split it in turn, the first most coarsely. A logical axis that is not named is not split.
    """

    placed: dict[str, MeshAxes]

    def __init__(self, **placed: str | MeshAxes) -> None:
        self.placed = {logical: (axes,) if isinstance(axes, str) else axes for logical, axes in placed.items()}

    def __str__(self) -> str:
        return ", ".join(f"{logical}→{'×'.join(axes)}" for logical, axes in self.placed.items()) or "whole"

    def of(self, logical: str) -> MeshAxes:
        """The mesh axes that split a logical axis."""
        return self.placed.get(logical, ())

    def split(self, axes: Iterable[str]) -> MeshAxes:
        """The mesh axes that split an array with these logical axes."""
        return tuple(physical for logical in axes for physical in self.of(logical))

    def spec(self, axes: Axes, name: str = "one array") -> PartitionSpec:
        """The ``PartitionSpec`` of an array with these logical axes.

        Raises ``ValueError`` where two of them land on one mesh axis: no device could hold such a shard.
        """
        split = self.split(axes)
        for physical in split:
            if split.count(physical) > 1:
                both = " and ".join(logical for logical in axes if physical in self.of(logical))
                raise ValueError(
                    f"logical axes {both} of {name} {axes} both land on mesh axis {physical!r}: "
                    f"map at most one of them to it ({self})"
                )
        entries = (self.of(logical) for logical in axes)
        return PartitionSpec(*(entry if len(entry) > 1 else entry[0] if entry else None for entry in entries))

    def check(self, name: str, axes: Axes, shape: tuple[int, ...], mesh: dict[str, int]) -> None:
        """Raises ``ValueError``, with both numbers, where a dimension does not divide by the mesh axes that split it.

        And where `spec` raises one, or the mesh lacks an axis.
        """
        self.spec(axes)
        for logical, size in zip(axes, shape, strict=True):
            split = self.of(logical)
            if missing := [axis for axis in split if axis not in mesh]:
                raise ValueError(f"{name}: {logical} is mapped to {missing[0]!r}, the mesh has {sorted(mesh)}")
            parts = prod(mesh[axis] for axis in split)
            if size % parts:
                raise ValueError(f"{name}: {logical}={size} is not divisible by {'×'.join(split)}={parts}")

    def specs(self, axes: Any) -> Any:
        """`spec` of every leaf of a nested dict of logical axes."""
        return nest({path: self.spec(leaf, path) for path, leaf in leaves(axes)})


class FirstDimension(Mapping):
    """The same, of which only the first dimension of an array is split, if its logical axis is named."""

    def __str__(self) -> str:
        return f"first of {super().__str__()}"

    def split(self, axes: Iterable[str]) -> MeshAxes:
        """The mesh axes that split it."""
        return super().split([*axes][:1])

    def spec(self, axes: Axes, name: str = "one array") -> PartitionSpec:
        """As a mapping's, of the first alone."""
        return super().spec(axes[:1], name)

    def check(self, name: str, axes: Axes, shape: tuple[int, ...], mesh: dict[str, int]) -> None:
        """As a mapping's, of the first alone."""
        super().check(name, axes[:1], shape[:1], mesh)


def make_mesh(devices: Sequence[Any], axes: dict[str, int], axis_type: AxisType = AxisType.Auto) -> Mesh:
    """A mesh of the first devices with these axis sizes, by default partitioned by the compiler (``Auto``).

    Raises ``ValueError`` where the machine has fewer devices than the axes need.
    """
    needed = prod(axes.values())
    if needed > len(devices):
        shape = ", ".join(f"{axis}={size}" for axis, size in axes.items())
        raise ValueError(f"a mesh of {shape} needs {needed} devices, this machine offers {len(devices)}")
    grid = np.array(devices[:needed]).reshape(tuple(axes.values()))
    return Mesh(grid, tuple(axes), axis_types=(axis_type,) * len(axes))
