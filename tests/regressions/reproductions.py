"""``python -m tests.regressions.reproductions NAME`` does what a fault makes raise or die, on 8 virtual devices."""

from __future__ import annotations

import sys
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def make_mesh(axis_type: AxisType = AxisType.Explicit, **axes: int) -> jax.sharding.Mesh:
    """A mesh of the first devices."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(axis_type,) * len(axes))


def static_arguments_have_shardings() -> None:
    """A sharding for each argument that is not static."""
    mesh = make_mesh(AxisType.Auto, data=8)
    shardings = (None, NamedSharding(mesh, PartitionSpec("data")))

    @partial(nnx.jit, in_shardings=shardings, static_argnums=2)
    def apply(model: nnx.Linear, x: jax.Array, double: bool) -> jax.Array:
        return model(x) * (2 if double else 1)

    apply(nnx.Linear(8, 8, rngs=nnx.Rngs(0)), jnp.ones((8, 8)), True)


def with_mesh_is_no_mesh() -> None:
    """A layer under a mesh, as it was written before there was jax.set_mesh."""
    with make_mesh(AxisType.Auto, data=8):
        init = nnx.with_partitioning(nnx.initializers.ones_init(), ("data", None))
        nnx.Linear(8, 8, kernel_init=init, rngs=nnx.Rngs(0))


def convolution_gradients_refuse_a_mesh() -> None:
    """Gradients by example."""
    everywhere = NamedSharding(make_mesh(AxisType.Auto, data=8), PartitionSpec())
    x, w = (jax.device_put(jnp.ones(shape), everywhere) for shape in ((64, 1, 4, 4), (1, 1, 3, 3)))

    def total(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x[None], w, (1, 1), "VALID").sum()

    jax.vmap(jax.grad(total), (None, 0))(w, x)


def pmap_refuses_one_device() -> None:
    """A batch that was put on the first device."""
    jax.pmap(lambda x: 2 * x)(jax.device_put(jnp.ones((8, 2)), jax.devices()[0]))


def meshes_are_explicit() -> None:
    """A mesh of which only names and sizes are said."""
    found = jax.make_mesh((8,), ("data",)).axis_types
    assert found == (AxisType.Auto,), found


def in_specs_must_match() -> None:
    """A parameter that is sharded at rest, and wanted whole."""
    mesh = make_mesh(data=8)
    with jax.set_mesh(mesh):
        w = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, PartitionSpec("data")))
        jax.jit(jax.shard_map(lambda w: 2 * w, in_specs=PartitionSpec(), out_specs=PartitionSpec()))(w)


def high_ranks_kill_the_process() -> None:
    """A likelihood of several factors."""

    @jax.jit
    def log_likelihood(x: jax.Array, a: jax.Array) -> jax.Array:
        return jnp.log(jnp.maximum(jnp.sum(x[..., None, None, None, None, None] * a, axis=2), 1e-16))

    jax.block_until_ready(log_likelihood(jnp.ones((10, 4, 6)), jnp.ones((10, 4, 6, 9, 9, 9, 9, 9))))


def reshape_drops_an_axis() -> None:
    """Heads of a batch of one."""
    mesh = make_mesh(data=1, tensor=4)
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((1, 512)), NamedSharding(mesh, PartitionSpec("data", "tensor")))
        spec = jax.jit(lambda x: x.reshape(-1, 4, 128))(x).sharding.spec
        assert spec[0] == "data", spec


def batch_dimensions_must_lie_alike() -> None:
    """Attention whose queries are split by heads and whose keys are whole."""
    mesh = make_mesh(model=8)
    with jax.set_mesh(mesh):
        specs = (PartitionSpec(None, None, "model"), PartitionSpec())
        q, k = (jax.device_put(jnp.ones((2, 4, 8, 3)), NamedSharding(mesh, spec)) for spec in specs)
        jax.jit(lambda q, k: jnp.einsum("bqhk,bshk->bhqs", q, k))(q, k)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
