"""Layouts, from scratch and as JAX has them."""

from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.contract import spec_axes
from meshproof.measures.layout import expected_shards, mesh_axes, observe_layout
from meshproof.measures.memory import theoretical_bytes
from reference_impl.mapping import Mapping, make_mesh

MESHES = [{"data": 2, "model": 4}, {"data": 4, "model": 2}, {"data": 8, "model": 1}, {"data": 1, "model": 8}]
MESH_OF_EIGHT = make_mesh(jax.devices(), {"data": 8})
ENTRIES = [None, "data", "model", ("data", "model"), ("model", "data")]


def specs():
    """Every spec of a matrix that uses no axis twice."""
    for spec in product(ENTRIES, ENTRIES):
        axes = spec_axes(spec)
        if len(axes) == len(set(axes)):
            yield spec


@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_expected_shards_are_jaxs(axes):
    """The meaning of a PartitionSpec, derived from scratch, is the one that JAX gives it, on every spec."""
    mesh = make_mesh(jax.devices(), axes)
    array = np.zeros((16, 24), np.float32)
    for spec in specs():
        placed = jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))
        [leaf] = observe_layout({"w": placed}, mesh, lambda _, spec=spec: PartitionSpec(*spec))
        assert leaf.as_declared
        assert tuple((shard.position, shard.index) for shard in leaf.shards) == expected_shards((16, 24), spec, axes)
        assert theoretical_bytes([leaf], axes) == leaf.shards[0].bytes
        assert mesh_axes(leaf, axes) == [[axis for axis in spec_axes([entry]) if axes[axis] > 1] for entry in spec]


def test_shards_in_another_order_lie_over_no_axes():
    """What two devices hold in exchange is no PartitionSpec's, though every shard has the right shape."""
    placed = jax.device_put(np.zeros(16), NamedSharding(MESH_OF_EIGHT, PartitionSpec("data")))
    [leaf] = observe_layout({"w": placed}, MESH_OF_EIGHT, None)
    first, second, *others = leaf.shards
    exchanged = (replace(first, index=second.index), replace(second, index=first.index), *others)
    assert mesh_axes(leaf, {"data": 8}) == [["data"]]
    assert mesh_axes(replace(leaf, shards=exchanged), {"data": 8}) is None
    assert mesh_axes(replace(leaf, shards=leaf.shards[:4]), {"data": 8}) is None


def test_another_layout_is_not_as_declared():
    """A swapped spec is not equivalent to the declared one."""
    axes = {"data": 2, "model": 4}
    mesh = make_mesh(jax.devices(), axes)
    placed = jax.device_put(np.zeros((16, 24)), NamedSharding(mesh, PartitionSpec("data", "model")))
    [leaf] = observe_layout({"w": placed}, mesh, lambda _: PartitionSpec("model", "data"))
    assert not leaf.as_declared


def test_what_a_spec_does_not_say_is_said():
    """Arrays whose spec is the declared one, but in another memory or over devices in another order."""
    turned = Mesh(MESH_OF_EIGHT.devices[::-1], MESH_OF_EIGHT.axis_names)
    spec = PartitionSpec("data")
    leaves = {
        "held": NamedSharding(MESH_OF_EIGHT, spec),
        "offloaded": NamedSharding(MESH_OF_EIGHT, spec, memory_kind="pinned_host"),
        "turned": NamedSharding(turned, spec),
    }
    arrays = {path: jax.device_put(np.zeros(8), sharding) for path, sharding in leaves.items()}
    seen = {leaf.path: (leaf.as_declared, leaf.spec) for leaf in observe_layout(arrays, MESH_OF_EIGHT, lambda _: spec)}
    assert seen == {
        "held": (True, str(spec)),
        "offloaded": (False, f"{spec} in pinned_host memory"),
        "turned": (False, f"{spec} over devices [7, 6, 5, 4, 3, 2, ...]"),
    }


def test_uneven_dimensions_are_refused():
    """A dimension that does not divide is an error that names both numbers."""
    with pytest.raises(ValueError, match="dimension 0 of 30 is not divisible by data×model=8"):
        expected_shards((30,), (("data", "model"),), {"data": 2, "model": 4})


def test_two_logical_axes_on_one_mesh_axis_are_refused():
    """A mapping that lands one mesh axis twice on one array is an error that names both logical axes."""
    with pytest.raises(ValueError, match=r"logical axes embed and mlp .* both land on mesh axis 'data'"):
        Mapping(embed="data", mlp="data").spec(("embed", "mlp"))
