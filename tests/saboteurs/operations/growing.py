"""Programs that grow by squares, or have another cache key in every process."""

import jax
import jax.numpy as jnp
import numpy as np

from meshproof.operations.growing import GrowingProgram
from meshproof.operations.growing.table import ROWS, layer, written_out

PLANTED, CAUGHT_BY = [], {}


def plant(name, make, **said):
    """A program; what is ``said`` of it by a clause is a part of the message."""
    program = GrowingProgram(name, make)
    PLANTED.append(program)
    CAUGHT_BY[program.id] = {clause.replace("_", "-"): text for clause, text in said.items()}


def remembering():
    """A layer that adds all inputs that it has had."""
    former = []

    def apply(x, w):
        former.append(x)
        return layer(sum(former), w)

    return apply


def tracing_anew():
    """A layer that traces all layers before it again, and throws that away."""
    former = []

    def apply(x, w):
        former.append(w)
        for each in 3 * former:
            jax.eval_shape(lambda each: layer(jnp.ones((ROWS, w.shape[0])), each), each)
        return layer(x, w)

    return apply


def with_constant(value):
    """Layers that add a number, made anew for each program."""

    def own():
        number = value()
        return lambda x, w: layer(x, w) + number

    return written_out(own)


def by_a_set():
    """A number that depends on the order of a set of strings."""
    order = list({"embed", "mlp", "heads", "vocab", "batch", "length", "expert"})
    return float(sum(place * len(name) ** 2 for place, name in enumerate(order)))


def wider_by_squares(depth, width):
    """One equation for every column."""
    x = jax.ShapeDtypeStruct((width,), "float32")
    return (lambda x: [x[place] + 1 for place in range(width)]), (x,)


plant("healthy", written_out(lambda: layer))
plant(
    "adds_all_inputs",
    written_out(remembering),
    OPS_6=r"equations of the jaxpr: \d+ at depth 6, \d+ at depth 24: \S+ times that, allowed 5",
)
plant(
    "traces_by_squares",
    written_out(tracing_anew),
    OPS_6=r"seconds of tracing: \S+ at depth 6, \S+ at depth 24: \S+ times that, allowed 6",
)
plant(
    "written_by_columns",
    wider_by_squares,
    OPS_6=r"equations of the jaxpr: \d+ at width 16, \d+ at width 64: \S+ times that, allowed 1.25",
)
KEYS = r"expected one key of {} in two fresh processes, saw \w+ and \w+: every process compiles it again"
plant("closes_over_an_id", with_constant(lambda: id(object()) % 9973 / 7), CMP_4=KEYS.format("closes_over_an_id"))
plant("closes_over_noise", with_constant(np.random.default_rng().random), CMP_4=KEYS.format("closes_over_noise"))
plant("reads_a_set", with_constant(by_a_set), CMP_4=KEYS.format("reads_a_set"))
