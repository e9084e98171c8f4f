"""A device that holds all of a split leaf while something runs, and what only looks like it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from meshproof.observing.state import values_of
from meshproof.observing.whole_leaves import watched

FIRST = SingleDeviceSharding(jax.devices()[0])


@pytest.fixture(scope="module")
def state():
    """Layers that are stacked over the devices, a head as large as one of them, a small vector, and zeros."""
    split = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
    shapes = {"layers": (16, 64, 64), "head": (64, 64), "vector": (8,)}
    random = np.random.default_rng(0)
    drawn = {name: random.normal(size=shape).astype("f") for name, shape in shapes.items()}
    return jax.device_put(drawn | {"zeros": np.zeros((64, 8), "f")}, split)


def seen(state, act):
    """The paths that are told of."""
    _, found = watched(state, values_of(state, ()), "save", lambda: act(state))
    return [sentence.partition(":")[0] for sentence in found]


@pytest.mark.parametrize(
    "act",
    [
        lambda state: [jax.device_put(leaf, FIRST) for leaf in state.values()],
        lambda state: [jax.device_put(leaf.reshape(-1), FIRST) for leaf in state.values()],
        lambda state: [jax.device_put(leaf[None].astype(jnp.bfloat16), FIRST) for leaf in state.values()],
        lambda state: [jnp.asarray(np.asarray(leaf)) for leaf in state.values()],
        lambda state: jax.jit(lambda tree: tree, out_shardings=NamedSharding(state["head"].sharding.mesh, P()))(state),
    ],
    ids=["to one device", "flat", "narrower", "from the host", "replicated"],
)
def test_a_leaf_that_is_whole_on_a_device_is_named(state, act):
    """In any shape and precision, however shortly it is there. Zeros may be anybody's."""
    assert seen(state, act) == ["['head']", "['layers']", "['vector']"]


@pytest.mark.parametrize(
    "act",
    [
        lambda state: [np.asarray(shard.data) for leaf in state.values() for shard in leaf.addressable_shards],
        lambda state: [layer for shard in state["layers"].addressable_shards for layer in shard.data],
        lambda state: [jax.device_put(np.ones((512, 64), "f"), state["head"].sharding) for _ in range(20)],
        lambda state: [jnp.isfinite(leaf).all() for leaf in state.values()],
        lambda state: [jax.device_put(np.ones((64, 64), bool), FIRST), jnp.zeros((64, 8))],
        lambda state: jax.tree.map(jnp.copy, state),
    ],
    ids=["shards", "layer by layer", "batches of a loader", "finite", "masks", "copies"],
)
def test_what_is_no_leaf_is_not_told(state, act):
    """Though it has the shape of one."""
    assert seen(state, act) == []
