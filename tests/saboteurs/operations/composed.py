"""Transforms and collectives with a fault, in compositions that are right otherwise."""

from dataclasses import replace
from functools import partial

import jax
from jax import lax

from meshproof.operations.transforms import PLAIN, Body, Transform, TransformFamily
from meshproof.operations.transforms.bodies import BODIES, mixed
from meshproof.operations.transforms.table import OUTER

NAMED = {transform.name: transform for transform in OUTER}
INNERS = (PLAIN, NAMED["jit"], NAMED["scan"])
PLANTED, CAUGHT_BY = [], {}


def plant(name, outer=PLAIN, said=None, bodies=BODIES[:3], inners=INNERS):
    """Compositions of that name; ``said`` of one is a part of the message."""
    family = TransformFamily(replace(outer, name=name), inners, bodies)
    PLANTED.append(family)
    CAUGHT_BY[family.id] = {"OPS-2": said} if said else {}


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def added(x, axis, backwards):
    """The sum over the devices; ``backwards`` transposes it."""
    return lax.psum(x, axis)


added.defvjp(
    lambda x, axis, backwards: (lax.psum(x, axis), None),
    lambda axis, backwards, _, ct: (lax.pcast(backwards(ct, axis), axis, to="varying"),),
)


def with_sum(backwards):
    """A body whose rows see a statistic of all, by a sum that is transposed so."""

    def body(devices, x, w):
        rows = x.sum(-2, keepdims=True)
        return mixed(x, w) + (added(rows, devices.axis, backwards) if devices.named else devices.psum(rows)), w

    return (Body("summed", body, (0, None)),)


def again(ct, axis):
    """As without ``check_vma``, where every device has a cotangent of its own."""
    return lax.psum(lax.pcast(ct, axis, to="varying"), axis)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def passed_on(x, steps):
    """What the device before has; its transpose goes the same way."""
    return lax.ppermute(x, *steps)


passed_on.defvjp(lambda x, steps: (passed_on(x, steps), None), lambda steps, _, ct: (lax.ppermute(ct, *steps),))


def with_steps(devices, x, w):
    """A body whose rows go to the next device, and from the last to none."""
    steps = (devices.axis, tuple((place, place + 1) for place in range(devices.size - 1))) if devices.named else ()
    return mixed(x, w) + (passed_on(x, steps) if devices.named else devices.shifted(x)), w


def forgets_weights(function):
    """What is computed anew in the backward pass has no gradient for w."""

    @jax.custom_vjp
    def run(x, w):
        return function(x, w)

    def recomputed(kept, cotangents):
        x, w = kept
        _, transposed = jax.vjp(lambda x, w: function(x, lax.stop_gradient(w)), x, w)
        return transposed(cotangents)

    run.defvjp(lambda x, w: (function(x, w), (x, w)), recomputed)
    return run


def once(function):
    """A scan that does not carry x to its second step."""
    return lambda x, w: lax.scan(lambda pair, _: (function(x, pair[1]), None), (x, w), None, length=2)[0]


plant("healthy_grad", NAMED["grad"])
plant("healthy_plain")
plant(
    "transposes_a_psum_to_a_psum",
    said=r"gradient, \S*shard_map\(\S*summed.*, a=\S+ over \w.*: gradient of x: \d+ of 64 elements differ",
    bodies=with_sum(again),
)
plant(
    "custom_vjp_forgets_its_reduction",
    said=r"gradient, .*check_vma=False\S*, a=\S+ over \w.*: gradient of x: \d+ of 64 elements differ, the first at",
    bodies=with_sum(lambda ct, axis: ct),
)
plant(
    "transposes_a_partial_permutation_forwards",
    said=r"gradient, .*with_steps.*: gradient of x: \d+ of 64 elements differ, the first at",
    bodies=(Body("with_steps", with_steps, (0, None)),),
    inners=(PLAIN, *OUTER[:6]),
)
plant(
    "remat_drops_a_term",
    Transform("", forgets_weights),
    r"gradient, remat_drops_a_term\(.*: gradient of w: \d+ of 64 elements differ, the first at .*, saw 0.0",
)
plant(
    "scan_without_carry",
    Transform("", once, NAMED["scan"].meaning),
    r"forward, .*: result x: \d+ of 64 elements differ, the first at",
)
