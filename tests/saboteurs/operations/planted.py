"""Operations that are right on one device, and wrong, or odd, on a mesh or of themselves."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax

from meshproof.operations import Operand, Operation, normal
from meshproof.operations.programs import current_mesh
from meshproof.operations.table.optimizers import OPTIMIZERS, RATE, stepped

X = Operand((8, 16))
ROWS = Operand(
    (8,), "int32", (lambda draws, shape: draws.integers(0, 8, size=shape), lambda draws, shape: np.arange(8) * 3)
)
PLANTED, CAUGHT_BY = [], {}


def plant(operation, said=None, clause="OPS-1"):
    """An operation; ``said`` of it is a part of the message."""
    PLANTED.append(operation)
    CAUGHT_BY[operation.id] = {clause: said} if said else {}


def on_a_mesh():
    """Whether the program is traced for several devices."""
    return current_mesh().size > 1


def replicated_over(axis_size):
    """Whether the mesh has an axis of that size beside another one."""
    sizes = tuple(current_mesh().shape.values())
    return len(sizes) > 1 and axis_size in sizes


def drops_an_update(x, rows, new):
    """On a mesh, an update outside the array is taken for one of the last row, and the last row is then not updated."""
    result = x.at[rows].add(new)
    return result.at[7].set(x[7]) if on_a_mesh() else result


def doubles(x, y):
    """Where a mesh has two axes of several devices, the second operand is summed over one that it is replicated on."""
    return jnp.concatenate([x, y * (2 if replicated_over(2) and replicated_over(4) else 1)], 0)


def loses_an_axis(x):
    """A mesh axis of size 1 takes a dimension with it."""
    total = x.sum(0, keepdims=True)
    return total[0] if on_a_mesh() and replicated_over(1) else total


@jax.custom_jvp
def gathers(x, rows):
    """Right forward."""
    return x[rows]


@gathers.defjvp
def no_gradient(primals, tangents):
    """Of a mesh, none goes back."""
    (x, rows), (moved, _) = primals, tangents
    return gathers(x, rows), moved[rows] * (0 if on_a_mesh() else 1)


def no_gradient_anywhere(x, rows):
    """Nor on one device, where only NumPy can tell."""
    return jax.lax.stop_gradient(x)[rows] + 0 * x[rows]


@jax.custom_vjp
def shifted(x):
    """Where a mesh has two axes of several devices, nobody has written its transpose."""
    return x + 1


def untransposed(_, back):
    """As JAX says it where a rule is missing."""
    if replicated_over(2) and replicated_over(4):
        raise NotImplementedError("Transpose rule (for reverse-mode differentiation) for 'shift' not implemented")
    return (back,)


shifted.defvjp(lambda x: (shifted(x), None), untransposed)
COUNT = [0]


def counts_its_traces(x):
    """Another number at each evaluation."""
    COUNT[0] += 1
    return x + COUNT[0]


def hangs(x):
    """Never ends being traced for a mesh."""
    while on_a_mesh():
        time.sleep(1)
    return x


def breaks(x):
    """An error that is no refusal."""
    return x + {}["missing"] if on_a_mesh() else x


def refuses(x):
    """Every layout of a mesh."""
    if on_a_mesh():
        raise NotImplementedError("no mesh is supported")
    return x


def halved(x):
    """Sums until the data says that it is enough."""

    def half(carry):
        count, x = carry
        return count + 1, x / 2 + 0 * x.sum(0, keepdims=True)

    return jax.lax.while_loop(lambda carry: carry[0] < 8 + 0 * x[0, 0], half, (0.0, x))[1].sum(0)


@jax.custom_vjp
def tripled(x):
    """Whose gradient is a thousandth too long, on one device too."""
    return 3 * x


tripled.defvjp(lambda x: (3 * x, None), lambda _, back: (3.003 * back,))


@jax.custom_vjp
def bent(x):
    """The same, with a kink at many of its operands."""
    return jax.nn.relu(x)


bent.defvjp(lambda x: (jax.nn.relu(x), x), lambda x, back: (1.003 * jnp.where(x > 0, back, 0),))


def narrowed(x):
    """Rounds where a mesh has an axis of four devices."""
    return x.astype(jnp.bfloat16) if replicated_over(4) else x


def kinked(x):
    """A maximum of equal numbers, and a kink at 0."""
    return x.max(1) + jax.nn.relu(x).sum(1)


def masked(x):
    """Half of it is minus infinity."""
    return jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -jnp.inf)


def scattered(x, rows, new):
    """As NumPy: updates outside the array are dropped."""
    result = x.copy()
    np.add.at(result, rows[rows < 8], new[rows < 8])
    return result


def by_leaf(gradient, parameter):
    """Each held to the norm that all together may have."""
    return gradient / jnp.maximum(1, jnp.linalg.norm(gradient))


plant(Operation("healthy_scatter", lambda x, rows, new: x.at[rows].add(new), (X, ROWS, X), scattered))
plant(Operation("healthy_sum", lambda x: x.sum(0, keepdims=True), (X,), lambda x: x.sum(0, keepdims=True)))
plant(
    Operation("drops_an_update", drops_an_update, (X, ROWS, X), scattered),
    r"forward, a=\S+ (Auto|Explicit): P.*: run 0: result 0: \d+ of 128 elements differ, the first at \(7, 0\)",
)
plant(
    Operation("doubles_a_replicated_operand", doubles, (X, X), lambda x, y: np.concatenate([x, y], 0)),
    r"forward, a=[24],b=[24] Auto: .*: expected (\S+), saw",
)
plant(
    Operation("loses_an_axis", loses_an_axis, (X,), lambda x: x.sum(0, keepdims=True)),
    r"a=(1,b=8|8,b=1) .*expected shape \(1, 16\), saw \(16,\)",
)
plant(
    Operation("gather_without_gradient", gathers, (X, Operand((8,), "int32", ROWS.draws[:1])), lambda x, i: x[i]),
    r"gradient, a=.*: run 0: gradient of operand 0: \d+ of 128 elements differ, .*, saw 0.0",
)
plant(
    Operation("gradient_dropped", no_gradient_anywhere, (X, Operand((8,), "int32", ROWS.draws[:1])), lambda x, i: x[i]),
    "run 0: gradient of operand 0 on one device: expected slope .*, saw 0",
)
plant(
    Operation("unknown_bytes", halved, (X,), lambda x: x.sum(0) * 2.0**-8, differentiable=False),
    "expected the bytes of all-reduce, saw a number that depends on the data",
    "OPS-7",
)
plant(Operation("not_deterministic", counts_its_traces, (X,)), "two evaluations of the same operands differ")
plant(
    Operation("another_shape", lambda x: x[:7], (X,), lambda x: x), r"expected shape \(8, 16\) of NumPy, saw \(7, 16\)"
)
plant(Operation("hangs", hangs, (X,)), r"hangs@operations, a=.*: expected an operation under its layouts within 150 s")
plant(Operation("breaks", breaks, (X,)), "forward, a=.*: KeyError: 'missing'")
plant(
    Operation("refuses", refuses, (X,)),
    r"refused under all \d+ layouts, the first time by: NotImplementedError: no mesh",
)
plant(
    Operation("gradient_refused", shifted, (X,), lambda x: x + 1),
    r"gradient, \d+ of \d+ layouts on Auto axes that give a result: expected gradients too, saw them refused, "
    r"the first under a=\S+ Auto: P.* by: NotImplementedError: Transpose rule",
)
NORMAL = Operand((8, 16), draws=(normal,))
plant(Operation("healthy_kink", kinked, (X,), lambda x: x.max(1) + np.maximum(x, 0).sum(1)))
plant(
    Operation("healthy_mask", masked, (NORMAL,), lambda x: np.where(np.tril(np.ones(x.shape)), x, -np.inf), exact=False)
)
plant(Operation("healthy_spectrum", jnp.fft.rfft, (NORMAL,), np.fft.rfft, exact=False, axis_types=("Auto",)))
plant(
    Operation("gradient_too_long", tripled, (NORMAL,), lambda x: 3 * x, exact=False, axis_types=("Auto",)),
    "run 0: gradient of operand 0 on one device: expected slope .*, saw",
)
plant(
    Operation("gradient_too_long_at_kinks", bent, (X,), lambda x: np.maximum(x, 0), axis_types=("Auto",)),
    "run 0: gradient of operand 0 on one device: expected slope .*, saw",
)
plant(
    Operation("narrower_on_some", narrowed, (X,), lambda x: x, differentiable=False),
    "result 0: expected float32 as on one device, saw bfloat16",
)
plant(
    Operation("wraps", lambda x: x.astype(jnp.int8) * 50, (X,), lambda x: x * 50, differentiable=False),
    r"on one device: expected -?150.0 of NumPy, saw results in int8, which cannot hold it",
)
[CLIPPED] = (each for each in OPTIMIZERS if each.name == "optax_clip_by_global_norm")
plant(
    replace(
        CLIPPED,
        name="clips_leaf_by_leaf",
        function=stepped(lambda: optax.chain(optax.stateless_with_tree_map(by_leaf), optax.sgd(RATE))),
    ),
    "values: result 0 differs from truth: by more than rounding explains",
)
