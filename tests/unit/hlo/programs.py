"""Programs whose communication is known on paper: the census must find it in what any compiler makes of them.

Each function lowers one program for the devices it is given, real or compile-only, and nothing is run. JAX is imported
inside, so that collecting tests starts no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

Rules = Mapping[str, str]

BATCH = 256
DIMENSIONS = {"input": 784, "embed": 512, "mlp": 2048, "classes": 10}
LAYERS = (("input", "embed"), ("embed", "mlp"), ("mlp", "embed"), ("embed", "classes"))

# Per strategy: mesh, then the mapping of logical to mesh axes for compute, parameters and optimizer state.
STRATEGIES: dict[str, tuple[dict[str, int], Rules, Rules, Rules]] = {
    "dp": ({"data": 8}, {"batch": "data"}, {}, {}),
    "zero1": ({"data": 8}, {"batch": "data"}, {}, {"embed": "data"}),
    "fsdp": ({"data": 8}, {"batch": "data"}, {"embed": "data"}, {"embed": "data"}),
    "tp": ({"model": 8}, {"mlp": "model"}, {"mlp": "model"}, {"mlp": "model"}),
    "fsdp_tp_2x4": (
        {"data": 2, "model": 4},
        {"batch": "data", "mlp": "model"},
        {"embed": "data", "mlp": "model"},
        {"embed": "data", "mlp": "model"},
    ),
    "fsdp_tp_4x2": (
        {"data": 4, "model": 2},
        {"batch": "data", "mlp": "model"},
        {"embed": "data", "mlp": "model"},
        {"embed": "data", "mlp": "model"},
    ),
}


def make_mesh(devices: Sequence[Any], axes: Mapping[str, int]) -> Any:
    """A mesh of Auto axes over these devices."""
    import numpy as np
    from jax.sharding import AxisType, Mesh

    shape = tuple(axes.values())
    count = int(np.prod(shape))
    return Mesh(np.array(devices[:count]).reshape(shape), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def train_step(devices: Sequence[Any], strategy: str, constrain_parameters: bool = True) -> Any:
    """One SGD-with-momentum step of a 784-512-2048-512-10 MLP, 2,506,762 parameters, under one strategy, lowered."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    axes, compute, store, optimizer = STRATEGIES[strategy]
    mesh = make_mesh(devices, axes)
    names = {f"kernel_{i}": layer for i, layer in enumerate(LAYERS)} | {
        f"bias_{i}": (o,) for i, (_, o) in enumerate(LAYERS)
    }

    def sharding(rules: Rules, logical: Sequence[str | None]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*(rules.get(name or "") for name in logical)))

    def constrain(tree: dict[str, Any], rules: Rules) -> dict[str, Any]:
        return {k: jax.lax.with_sharding_constraint(v, sharding(rules, names[k])) for k, v in tree.items()}

    def loss(parameters: dict[str, Any], x: Any, y: Any) -> Any:
        with jax.named_scope("forward"):
            if constrain_parameters:
                parameters = constrain(parameters, compute)
            for i, (_, output) in enumerate(LAYERS):
                x = x @ parameters[f"kernel_{i}"] + parameters[f"bias_{i}"]
                x = jax.lax.with_sharding_constraint(x, sharding(compute, ("batch", output)))
                x = jax.nn.relu(x) if i + 1 < len(LAYERS) else x
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(x) * jax.nn.one_hot(y, x.shape[-1]), -1))

    def step(parameters: dict[str, Any], momentum: dict[str, Any], x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        with jax.named_scope("synchronize_gradients"):
            gradients = constrain(gradients, store)
        with jax.named_scope("optimizer"):
            momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
            parameters = jax.tree.map(lambda p, m: p - 0.1 * m, parameters, momentum)
        return parameters, momentum, value

    at_rest = {name: sharding(store, logical) for name, logical in names.items()}
    state = {name: sharding(optimizer, logical) for name, logical in names.items()}
    sizes = {name: tuple(DIMENSIONS[axis] for axis in logical) for name, logical in names.items()}
    arguments = (
        {k: jax.ShapeDtypeStruct(sizes[k], jnp.float32, sharding=at_rest[k]) for k in names},
        {k: jax.ShapeDtypeStruct(sizes[k], jnp.float32, sharding=state[k]) for k in names},
        jax.ShapeDtypeStruct((BATCH, 784), jnp.float32, sharding=sharding(compute, ("batch", None))),
        jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=sharding(compute, ("batch",))),
    )
    shardings = (at_rest, state, sharding({}, ()))
    return jax.jit(step, out_shardings=shardings, donate_argnums=(0, 1)).lower(*arguments)


def two_layers(devices: Sequence[Any]) -> Any:
    """FSDP over data=8 of x @ [512, 2048] @ [2048, 512] with two biases: the smallest step that has every kind of leaf.

    512 is the sharded axis, so the kernels and the second bias are gathered and scattered, the first bias and the loss
    are reduced.
    """
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = make_mesh(devices, {"data": 8})
    specs = {"w": ("data", None), "v": (None, "data"), "a": (None,), "b": ("data",)}
    sizes = {"w": (512, 2048), "v": (2048, 512), "a": (2048,), "b": (512,)}

    def constrain(x: Any, *spec: str | None) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*spec)))

    def loss(p: dict[str, Any], x: Any) -> Any:
        with jax.named_scope("forward"):
            p = {name: constrain(leaf) for name, leaf in p.items()}
            h = constrain(jax.nn.relu(x @ p["w"] + p["a"]), "data", None)
            return jnp.mean(constrain(h @ p["v"] + p["b"], "data", None) ** 2)

    def step(p: dict[str, Any], x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(p, x)
        with jax.named_scope("synchronize_gradients"):
            gradients = {name: constrain(leaf, *specs[name]) for name, leaf in gradients.items()}
        with jax.named_scope("optimizer"):
            return jax.tree.map(lambda p, g: p - 0.1 * g, p, gradients), value

    at_rest = {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in specs.items()}
    p = {k: jax.ShapeDtypeStruct(sizes[k], jnp.float32, sharding=at_rest[k]) for k in specs}
    x = jax.ShapeDtypeStruct((BATCH, 512), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data")))
    out = (at_rest, NamedSharding(mesh, PartitionSpec()))
    return jax.jit(step, out_shardings=out, donate_argnums=0).lower(p, x)


def scanned_layers(devices: Sequence[Any]) -> Any:
    """FSDP+TP over data=2, model=4 of six residual layers [512, 2048] and [2048, 512] in a scan."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = make_mesh(devices, {"data": 2, "model": 4})

    def constrain(x: Any, *spec: str | None) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*spec)))

    def layer(x: Any, w: tuple[Any, Any]) -> tuple[Any, None]:
        h = jnp.tanh(x @ constrain(w[0], None, "model"))
        return constrain(x + h @ constrain(w[1], "model", None), "data", None), None

    def loss(w: tuple[Any, Any], x: Any) -> Any:
        with jax.named_scope("forward"):
            return jnp.mean(jax.lax.scan(layer, x, w)[0] ** 2)

    def step(w: tuple[Any, Any], x: Any) -> Any:
        value, (g, k) = jax.value_and_grad(loss)(w, x)
        with jax.named_scope("synchronize_gradients"):
            gradients = constrain(g, None, "data", "model"), constrain(k, None, "model", "data")
        with jax.named_scope("optimizer"):
            return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients), value

    specs = (None, "data", "model"), (None, "model", "data")
    at_rest = tuple(NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs)
    shapes = (6, 512, 2048), (6, 2048, 512)
    w = tuple(jax.ShapeDtypeStruct(s, jnp.float32, sharding=h) for s, h in zip(shapes, at_rest, strict=True))
    x = jax.ShapeDtypeStruct((BATCH, 512), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data")))
    out = (at_rest, NamedSharding(mesh, PartitionSpec()))
    return jax.jit(step, out_shardings=out, donate_argnums=0).lower(w, x)


def _by_hand(devices: Sequence[Any], body: Callable[..., Any], specs: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """`body` inside shard_map over data=2, model=4; each argument is (per-device shape, dtype), sharded over both."""
    import jax
    from jax.sharding import NamedSharding

    mesh = make_mesh(devices, {"data": 2, "model": 4})
    mapped = jax.shard_map(body, mesh=mesh, in_specs=tuple(specs), out_specs=specs[0], check_vma=False)
    structs = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
        for (shape, dtype), spec in zip(arguments, specs, strict=True)
    ]
    return jax.jit(mapped).lower(*structs)


def collectives(devices: Sequence[Any]) -> Any:
    """Every collective of `jax.lax` once, written out by hand on [16, 32] f32 per device."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    def body(x: Any) -> Any:
        with jax.named_scope("forward"):
            gathered = jax.lax.all_gather(x, "model", axis=0, tiled=True)  # [64, 32]
            ring = jax.lax.ppermute(jnp.sin(x), "model", [(i, (i + 1) % 4) for i in range(4)])
            hop = jax.lax.ppermute(jnp.cos(x), "data", [(0, 1)])
        with jax.named_scope("synchronize_gradients"):
            scattered = jax.lax.psum_scatter(jnp.tan(x), "data", scatter_dimension=0, tiled=True)  # [8, 32]
            over_both = jax.lax.psum(jnp.sinh(x), ("data", "model"))
        with jax.named_scope("optimizer"):
            over_data = jax.lax.psum(jnp.cosh(x), "data")
            swapped = jax.lax.all_to_all(jnp.tanh(x), "model", split_axis=1, concat_axis=0, tiled=True)  # [64, 8]
        half = jax.lax.psum(x[:8].astype(jnp.bfloat16), "model").astype(jnp.float32)  # [8, 32] bf16
        total = gathered.sum(0) + scattered.sum(0) + half.sum(0) + swapped.sum()
        return ring + hop + over_both + over_data + total

    spec = PartitionSpec(("data", "model"), None)
    return _by_hand(devices, body, [spec], [((128, 32), jnp.float32)])


def loops(devices: Sequence[Any]) -> Any:
    """Collectives in nested scans (3 of 5), in a loop and in a branch that depend on data, and in equal branches."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    def inner(h: Any, _: None) -> tuple[Any, None]:
        return jnp.sin(jax.lax.psum(h, "model")), None

    def outer(h: Any, _: None) -> tuple[Any, None]:
        h = jax.lax.scan(inner, h, None, length=5)[0]
        return jax.lax.ppermute(h, "data", [(0, 1), (1, 0)]), None

    def body(x: Any, n: Any) -> Any:
        n = n[0]
        h = jax.lax.scan(outer, x, None, length=3)[0]
        h = jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.cos(jax.lax.psum(c[1], "data"))), (0, h))[1]
        h = jax.lax.cond(n > 5, lambda h: jnp.sin(jax.lax.psum(h, ("data", "model"))), lambda h: h * 2, h)
        gather = partial(jax.lax.all_gather, axis_name="model", axis=0, tiled=True)
        return jax.lax.cond(n > 7, lambda h: gather(h).min(0) + h, lambda h: gather(h).max(0) * h, h)

    specs = [PartitionSpec(("data", "model"), None), PartitionSpec()]
    return _by_hand(devices, body, specs, [((128, 32), jnp.float32), ((1,), jnp.int32)])


FIXTURES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "two_layers": two_layers,
    "scanned_layers": scanned_layers,
    "collectives": collectives,
    "loops": loops,
}
