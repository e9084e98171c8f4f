"""A product that is decomposed: between two hops there is something to compute, forward and backward."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.lax import psum_scatter
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from reference_impl.strategies.sequence_parallel_collective_matmul import (
    from_previous_device,
    gather_multiply,
    multiply_scatter,
)

INTO = ("btd,df->btf", (2, 4, 8), (8, 16))
OUT_OF = ("btf,fd->btd", (2, 16, 16), (16, 8))


def gather(subscripts, x, w):
    """Into a region."""
    return gather_multiply(subscripts, x, [w])[0]


def gather_first(subscripts, x, w):
    """The whole sequence goes round, and is multiplied then: the same bytes and hops."""
    parts = [x]
    for _ in range(3):
        parts.append(from_previous_device(parts[-1]))
    return jnp.einsum(subscripts, jnp.concatenate(parts, axis=1), w)


def multiply_first(subscripts, x, w):
    """The whole product is made, and its parts go round then."""
    parts = jnp.split(jnp.einsum(subscripts, x, w), 4, axis=1)
    total = parts[0]
    for part in parts[1:]:
        total = from_previous_device(total) + part
    return total


def at_once(subscripts, x, w):
    """No ring."""
    return psum_scatter(jnp.einsum(subscripts, x, w), "model", scatter_dimension=1, tiled=True)


def hops(run, *shapes):
    """How many hops ``run`` makes round four devices; and during how many there is no product that could be made.

    A product can be made during a hop if neither needs what the other gives.
    """
    everywhere = PartitionSpec("model")
    mesh = AbstractMesh((4,), ("model",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(run, mesh=mesh, in_specs=(everywhere,) * len(shapes), out_specs=everywhere)
    arrays = [jax.ShapeDtypeStruct((4 * shape[0], *shape[1:]), jnp.float32) for shape in shapes]
    [shard_map] = jax.make_jaxpr(mapped)(*arrays).eqns
    steps = shard_map.params["jaxpr"].eqns
    maker, needs = {}, []
    for i, step in enumerate(steps):
        direct = {maker[id(read)] for read in step.invars if id(read) in maker}
        needs.append(direct.union(*(needs[j] for j in direct)))
        maker |= {id(written): i for written in step.outvars}
    moves = [i for i, step in enumerate(steps) if step.primitive.name == "ppermute"]
    products = [i for i, step in enumerate(steps) if "dot_general" in str(step)]
    return len(moves), sum(all(i in needs[j] or j in needs[i] for j in products) for i in moves)


def with_gradients(multiply):
    """The product's gradients by both operands, of a loss that is not linear in it."""
    return jax.grad(lambda x, w: jnp.sin(multiply(x, w)).sum(), argnums=(0, 1))


@pytest.mark.parametrize(
    ("multiply", "operands", "forward", "step"),
    [
        (gather, INTO, (3, 0), (6, 0)),
        (multiply_scatter, OUT_OF, (3, 0), (6, 0)),
        (gather_first, INTO, (3, 3), (6, 3)),
        (multiply_first, OUT_OF, (3, 3), (6, 6)),
        (at_once, OUT_OF, (0, 0), (0, 0)),
    ],
)
def test_every_hop_has_a_product_beside_it(multiply, operands, forward, step):
    """On the page's rings; not where all is gathered, or multiplied, first."""
    multiply = partial(multiply, operands[0])
    assert hops(multiply, *operands[1:]) == forward
    assert hops(with_gradients(multiply), *operands[1:]) == step
