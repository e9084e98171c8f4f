"""Trees of parameters in ``shard_map``, of which every device along one mesh axis holds a shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
from jax.lax import all_gather, axis_index, axis_size, dynamic_slice_in_dim, psum, psum_scatter

from meshproof.contract import Tree
from reference_impl.compat import gather_equal, varying
from reference_impl.mapping import Axes, Mapping, MeshAxes
from reference_impl.models import Model


def make_own(tree: Tree, model: Model, mapping: Mapping, over: MeshAxes) -> Tree:
    """Parameters, ``varying`` along those axes of ``over`` that do not split them by ``mapping``."""

    def own(leaf: jax.Array, axes: Axes) -> jax.Array:
        return reduce(varying, shared_over(axes, mapping, over), leaf)

    return jax.tree.map(own, dict(tree), model.axes)  # type: ignore[no-any-return]


def sum_of_own(tree: Tree, model: Model, mapping: Mapping, over: MeshAxes) -> Tree:
    """The sum of each gradient over those axes of ``over`` that do not split its parameter."""

    def total(leaf: jax.Array, axes: Axes) -> jax.Array:
        return psum(leaf, shared_over(axes, mapping, over))

    return jax.tree.map(total, dict(tree), model.axes)  # type: ignore[no-any-return]


def mean_of_own(tree: Tree, model: Model, mapping: Mapping, over: MeshAxes) -> Tree:
    """`sum_of_own` divided by the number of devices: the gradient of the mean of their losses."""
    return jax.tree.map(lambda total: total / axis_size(over), sum_of_own(tree, model, mapping, over))  # type: ignore[no-any-return]


def shared_over(axes: Axes, mapping: Mapping, over: MeshAxes) -> MeshAxes:
    """The mesh axes of ``over`` along which an array with these logical axes is replicated."""
    return tuple(axis for axis in over if axis not in mapping.split(axes))


@dataclass(frozen=True)
class Shards:
    """Of ``model``'s parameters, as ``mapping`` splits them over the mesh axis ``over``."""

    model: Model
    mapping: Mapping
    over: str

    def gather(self, tree: Tree) -> Tree:
        """The whole parameters, ``varying`` along ``over``: a gradient with respect to them is this device's own."""
        return self.each(
            lambda shard, dimension: all_gather(shard, self.over, axis=dimension, tiled=True),
            lambda whole: varying(whole, self.over),
            tree,
        )

    def gather_equal(self, tree: Tree) -> Tree:
        """The whole parameters, typed as replicated along ``over``."""
        return self.each(lambda shard, dimension: gather_equal(shard, self.over, dimension), lambda whole: whole, tree)

    def scatter_sum(self, tree: Tree) -> Tree:
        """Each device's shard of the sum of all devices' trees; the whole sum of leaves that are not split."""
        return self.each(
            lambda whole, dimension: psum_scatter(whole, self.over, scatter_dimension=dimension, tiled=True),
            lambda whole: psum(whole, self.over),
            tree,
        )

    def scatter_mean(self, tree: Tree) -> Tree:
        """`scatter_sum` divided by the number of devices."""
        return self.scatter_sum(jax.tree.map(lambda whole: whole / self.size, dict(tree)))

    def own(self, tree: Tree) -> Tree:
        """Each device's shard of replicated leaves."""
        return self.each(self.cut, lambda whole: whole, tree)

    def cut(self, whole: jax.Array, dimension: int) -> jax.Array:
        """This device's part along one dimension."""
        length = whole.shape[dimension] // self.size
        return dynamic_slice_in_dim(whole, axis_index(self.over) * length, length, dimension)

    @property
    def size(self) -> int:
        """The number of shards."""
        return axis_size(self.over)

    def each(self, split: Callable[[jax.Array, int], Any], whole: Callable[[jax.Array], Any], tree: Tree) -> Tree:
        """``split(leaf, dimension)`` of every leaf that is split along a dimension, ``whole(leaf)`` of the others."""

        def one(leaf: jax.Array, axes: Axes) -> Any:
            split_by = [self.over in self.mapping.of(logical) for logical in axes]
            return split(leaf, split_by.index(True)) if any(split_by) else whole(leaf)

        return jax.tree.map(one, dict(tree), self.model.axes)  # type: ignore[no-any-return]
