"""What every version of JAX does, and no number of a strategy would show: asked of each release all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.observing.defaults.probe import CannotAskError, probe
from meshproof.observing.defaults.sharding import demand_no_mesh

Operand = tuple[tuple[int, ...], P]

ROWS: Operand = ((4, 4), P("a", None))
COLUMNS: Operand = ((4, 4), P(None, "b"))
BATCH: Operand = ((4, 8, 2), P("a"))

SPLIT: dict[str, tuple[Callable[..., Any], list[Operand], list[str | None]]] = {
    "argmax": (lambda x: jnp.argmax(x, 1), [ROWS], ["a"]),
    "broadcast": (lambda x: x[:, None] + jnp.zeros((4, 3, 4)), [ROWS], ["a", None, None]),
    "concatenate": (lambda x: jnp.concatenate([x, x], 1), [ROWS], ["a", None]),
    "convolution": (
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        *([BATCH, ((3, 2, 4), P(None, None, "b"))], ["a", None, None]),
    ),
    "cumulative sum": (lambda x: jnp.cumsum(x, 1), [ROWS], ["a", None]),
    "dynamic slice": (lambda x: jax.lax.dynamic_slice_in_dim(x, 1, 2, 1), [ROWS], ["a", None]),
    "dynamic update": (lambda x: jax.lax.dynamic_update_slice(x, x[:, :2], (0, 1)), [ROWS], ["a", None]),
    "einsum": (
        lambda x, y: jnp.einsum("bij,bjk->bik", x, y),
        *([BATCH, ((4, 2, 4), P("a", None, "b"))], ["a", None, "b"]),
    ),
    "gradient of a product": (lambda x, y: jax.grad(lambda y: (x @ y).sum())(y), [ROWS, COLUMNS], [None, "b"]),
    "one-hot": (lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 4), [ROWS], ["a", None]),
    "padding": (lambda x: jnp.pad(x, ((0, 0), (1, 1))), [ROWS], ["a", None]),
    "product": (lambda x, y: x @ y, [ROWS, COLUMNS], ["a", "b"]),
    "rematerialised": (jax.checkpoint(jnp.sin), [ROWS], ["a", None]),
    "repeat": (lambda x: jnp.repeat(x, 2, axis=1), [ROWS], ["a", None]),
    "reshape": (lambda x: x.reshape(4, 2, 2), [ROWS], ["a", None, None]),
    "scan": (lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), x[:, 0] * 0, x.T)[1], [ROWS], [None, "a"]),
    "slice": (lambda x: x[:, :2], [ROWS], ["a", None]),
    "softmax": (lambda x: jax.nn.softmax(x, 1), [ROWS], ["a", None]),
    "sort": (lambda x: jnp.sort(x, 1), [ROWS], ["a", None]),
    "sum": (lambda x: x.sum(1), [ROWS], ["a"]),
    "take": (lambda x: jnp.take(x, jnp.array([0, 1]), axis=1), [ROWS], ["a", None]),
    "top-k": (lambda x: jax.lax.top_k(x, 2)[0], [ROWS], ["a", None]),
    "transpose": (lambda x: x.T, [ROWS], [None, "a"]),
    "vmap": (jax.vmap(jnp.sin), [ROWS], ["a", None]),
    "where": (lambda x: jnp.where(x > 0, x, 0), [ROWS], ["a", None]),
}
"""By name a function, its operands on explicit axes, and the spec of its result."""


@probe(
    "jax",
    (">=0.7.1", {name: spec for name, (_, _, spec) in SPLIT.items()}),
    ("<0.7.1", "raises AttributeError"),
    kind="promise",
)
def explicit_layouts() -> dict[str, list[str | None] | str]:
    """specs of results on explicit axes; one that says less is gathered"""
    mesh = jax.make_mesh((1, 1), ("a", "b"), axis_types=(AxisType.Explicit,) * 2, devices=jax.devices()[:1])

    def spec(function: Callable[..., Any], operands: list[Operand]) -> list[str | None] | str:
        given = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, at)) for shape, at in operands]
        try:
            result = jax.eval_shape(function, *given)
        except Exception as error:
            return f"raises {type(error).__name__}"
        return [*result.sharding.spec, *[None] * (result.ndim - len(result.sharding.spec))]

    with jax.set_mesh(mesh):
        return {name: spec(function, operands) for name, (function, operands, _) in SPLIT.items()}


POLICIES: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "dots_saveable": (lambda saves: saves.dots_saveable, [3, 3]),
    "dots_with_no_batch_dims_saveable": (lambda saves: saves.dots_with_no_batch_dims_saveable, [3, 3]),
    "everything_saveable": (lambda saves: saves.everything_saveable, [3, 2]),
    "nothing_saveable": (lambda saves: saves.nothing_saveable, [4, 3]),
    "save_any_names_but_these": (lambda saves: saves.save_any_names_but_these("named"), [4, 3]),
    "save_from_both_policies": (
        lambda saves: saves.save_from_both_policies(saves.dots_saveable, saves.save_only_these_names("named")),
        [3, 2],
    ),
    "save_only_these_names": (lambda saves: saves.save_only_these_names("named"), [4, 2]),
    "save_only_these_names, others": (lambda saves: saves.save_only_these_names("another"), [4, 3]),
}
"""By name a policy, and how many products and sines a value and its gradient take: three and two are saved, what is
more is computed again."""


def primitives(jaxpr: Any) -> Iterator[str]:
    """The names of its primitives, and of those of the jaxprs in it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


@probe("jax", (">=0.7.0", {name: counts for name, (_, counts) in POLICIES.items()}), kind="promise")
def recomputed_by_policies() -> dict[str, list[int]]:
    """products and sines in a gradient under each policy of ``jax.checkpoint``"""

    def value(x: Any) -> Any:
        return jnp.sin(checkpoint_name(jnp.sin(x @ x), "named")).sum()

    def counts(policy: Callable[..., bool]) -> list[int]:
        traced = jax.make_jaxpr(jax.grad(jax.checkpoint(value, policy=policy)))(np.ones((2, 2), np.float32))
        found = Counter(primitives(traced.jaxpr))
        return [found["dot_general"], found["sin"]]

    return {name: counts(make(jax.checkpoint_policies)) for name, (make, _) in POLICIES.items()}


@probe("jax", (">=0.7.0", {"donate_argnums": True, "donate_argnames": True, "neither": False}), kind="promise")
def donated() -> dict[str, bool]:
    """whether a program's result takes the buffer of an operand"""
    x = np.ones(3, np.float32)

    def aliased(**named: Any) -> bool:
        memory: Any = jax.jit(lambda x, y: x + y, **named).lower(x, x).compile().memory_analysis()
        if memory is None:
            raise CannotAskError("its backend gives no memory analysis")
        return bool(memory.alias_size_in_bytes)

    return {
        "donate_argnums": aliased(donate_argnums=1),
        "donate_argnames": aliased(donate_argnames="y"),
        "neither": aliased(),
    }


@probe("jax", (">=0.7.0", "float32"), kind="promise")
def preferred_type() -> str:
    """type of a product of bfloat16 with ``preferred_element_type=jax.numpy.float32``"""
    half = jax.ShapeDtypeStruct((2, 2), jnp.bfloat16)
    return str(jax.eval_shape(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32), half).dtype)


PLACED = ["device_put", "device_put, another order", "from_callback", "from_process_local_data", "from_single_devices"]


@probe("jax", (">=0.7.0", dict.fromkeys(PLACED, True)), kind="promise")
def rows_of_devices() -> dict[str, bool]:
    """whether each device has the rows that its place in a mesh says, by how the array was made"""
    demand_no_mesh()
    devices = jax.local_devices()[:4]
    if len(devices) < 2 or jax.process_count() > 1:
        raise CannotAskError("one device, or those of several processes")
    rows = np.arange(8 * len(devices), dtype=np.float32).reshape(-1, 2)
    there, back = (NamedSharding(Mesh(np.array(order), ("rows",)), P("rows")) for order in (devices, devices[::-1]))
    each = np.split(rows, len(devices))
    made = [
        (jax.device_put(rows, there), devices),
        (jax.device_put(jax.device_put(rows, there), back), devices[::-1]),
        (jax.make_array_from_callback(rows.shape, back, lambda index: rows[index]), devices[::-1]),
        (jax.make_array_from_process_local_data(back, rows), devices[::-1]),
        (
            jax.make_array_from_single_device_arrays(rows.shape, there, [*map(jax.device_put, each, devices)]),
            devices,
        ),
    ]

    def right(array: jax.Array, order: list[jax.Device]) -> bool:
        own = {shard.device: np.asarray(shard.data) for shard in array.addressable_shards}
        return all(np.array_equal(own[device], part) for device, part in zip(order, each, strict=True))

    return {name: right(*one) for name, one in zip(PLACED, made, strict=True)}
