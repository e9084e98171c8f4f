"""What devices hand each other by hand, and what each draws: no strategy of the book calls all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.observing.defaults.probe import CannotAskError, probe
from meshproof.observing.defaults.sharding import demand_no_mesh

DEVICES = 4
PAIRS = [[0, 1], [2, 3]]
ROWS = np.random.default_rng(0).permutation(DEVICES * DEVICES * 8).astype(np.float32).reshape(DEVICES, DEVICES, 8)
"""By device what each has of all, in as many rows as there are devices."""

Exchange = tuple[Callable[[Any], Any], np.ndarray]

EXCHANGES: dict[str, Exchange] = {
    "all_gather of columns": (
        lambda x: lax.all_gather(x, "d", axis=1, tiled=True),
        np.stack([np.concatenate(list(ROWS), 1)] * DEVICES),
    ),
    "all_to_all of rows": (lambda x: lax.all_to_all(x, "d", 0, 0, tiled=True), ROWS.swapaxes(0, 1)),
    "all_to_all of rows to columns": (
        lambda x: lax.all_to_all(x, "d", 0, 1, tiled=True),
        np.stack([np.concatenate(list(ROWS[:, device : device + 1]), 1) for device in range(DEVICES)]),
    ),
    "pmax": (lambda x: lax.pmax(x, "d"), np.stack([ROWS.max(0)] * DEVICES)),
    "pmin": (lambda x: lax.pmin(x, "d"), np.stack([ROWS.min(0)] * DEVICES)),
    "ppermute": (
        lambda x: lax.ppermute(x, "d", [(device, (device + 1) % DEVICES) for device in range(DEVICES)]),
        np.roll(ROWS, 1, 0),
    ),
    "psum of pairs": (
        lambda x: lax.psum(x, "d", axis_index_groups=PAIRS),
        np.repeat(ROWS.reshape(2, 2, DEVICES, 8).sum(1), 2, 0),
    ),
    "gradient of a psum of pairs": (
        jax.grad(lambda x: (lax.psum(x, "d", axis_index_groups=PAIRS) * (1 + lax.axis_index("d"))).sum()),
        np.broadcast_to(np.array([3.0, 3.0, 7.0, 7.0])[:, None, None], ROWS.shape),
    ),
    "psum_scatter of columns": (
        lambda x: lax.psum_scatter(x, "d", scatter_dimension=1, tiled=True),
        np.stack(np.split(ROWS.sum(0), DEVICES, 1)),
    ),
}
"""By name what a device makes of its rows, and what all must have, one after the other."""


@probe("jax", (">=0.7.0", dict.fromkeys(EXCHANGES, True)), kind="promise")
def exchanged_by_hand() -> dict[str, bool]:
    """whether collectives in ``jax.shard_map`` give four devices what NumPy says"""
    demand_no_mesh()
    devices = jax.local_devices()[:DEVICES]
    if len(devices) < DEVICES or jax.process_count() > 1:
        raise CannotAskError("fewer than four devices")
    mesh = Mesh(np.array(devices), ("d",))

    @jax.jit
    def every(x: Any) -> dict[str, Any]:
        by_hand = (
            jax.shard_map(function, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
            for function, _ in EXCHANGES.values()
        )
        return {name: function(x) for name, function in zip(EXCHANGES, by_hand, strict=True)}

    given = jax.device_put(ROWS.reshape(-1, 8), NamedSharding(mesh, P("d")))
    saw = jax.device_get(every(given))
    return {name: bool(np.array_equal(saw[name].ravel(), true.ravel())) for name, (_, true) in EXCHANGES.items()}


GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")

SCALES = {"lecun_normal": 1 / 64, "glorot_uniform": 2 / 256}
"""Variances of a kernel of 64 × 192 by their papers: of its inputs, or of the mean of inputs and outputs. What is drawn
has them within a twentieth."""

DRAWN = [*SCALES, "rows permuted", *(f"fold_in of {name}" for name in GENERATORS)]


@probe("jax", (">=0.7.0", dict.fromkeys(DRAWN, True)), kind="promise")
def drawn_as_promised() -> dict[str, bool]:
    """whether initialisers have the variance of their papers, rows are permuted, and keys by ``fold_in`` differ"""
    rows = np.arange(16, dtype=np.float32).reshape(8, 2)

    @jax.jit
    def draw() -> tuple[dict[str, Any], Any, list[Any]]:
        key = jax.random.key(0)
        made = {name: jnp.var(getattr(jax.nn.initializers, name)()(key, (64, 192))) for name in SCALES}
        keys = []
        for name in GENERATORS:
            own = jax.random.key(0, impl=name)
            keys.append([jax.random.key_data(each) for each in (own, *(jax.random.fold_in(own, at) for at in (1, 2)))])
        return made, jax.random.permutation(key, jnp.asarray(rows)), keys

    variances, permuted, keys = jax.device_get(draw())
    moved = not np.array_equal(permuted, rows) and np.array_equal(permuted[permuted[:, 0].argsort()], rows)
    differ = [len({each.tobytes() for each in of}) == len(of) for of in keys]
    near = [bool(abs(variances[name] / true - 1) < 0.05) for name, true in SCALES.items()]
    return dict(zip(DRAWN, [*near, moved, *differ], strict=True))


@probe("jax", (">=0.7.1", [["a", None], ["a", None]]), ("<0.7.1", "raises AttributeError"), kind="promise")
def drawn_in_shards() -> list[list[str | None]]:
    """specs of ``jax.random.normal`` and ``uniform`` with an ``out_sharding`` over an explicit axis"""
    mesh = jax.make_mesh((1,), ("a",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:1])
    place = NamedSharding(mesh, P("a"))
    with jax.set_mesh(mesh):
        made = [
            jax.eval_shape(lambda key, draw=draw: draw(key, (4, 4), out_sharding=place), jax.random.key(0))
            for draw in (jax.random.normal, jax.random.uniform)
        ]
    return [[*each.sharding.spec, None][:2] for each in made]
