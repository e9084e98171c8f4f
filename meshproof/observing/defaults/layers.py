"""What Flax, and optax beside it, does where nobody says. Asked only where a trainer imports Flax."""

from __future__ import annotations

import inspect
from functools import cache, partial
from typing import Any

import flax
import jax
import numpy as np
import optax
from flax import linen, nnx
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from meshproof.observing.defaults.draws import plain
from meshproof.observing.defaults.probe import ABSENT, PROBES, CannotAskError, Probe, probe


def option(name: str) -> Any:
    """The value of an option of Flax's configuration."""
    try:
        return getattr(flax.config, name)
    except AttributeError:
        return ABSENT


OPTIONS: dict[str, tuple[str, str, str, bool]] = {
    "eager_sharding": (
        *("flax_always_shard_variable", "whether an annotated variable of NNX is sharded where it is made"),
        *("0.12.0", True),
    ),
    "hijax_variables": ("flax_hijax_variable", "whether variables of NNX are HiJAX objects", "0.12.0", False),
    "graph_mode": ("nnx_graph_mode", "whether NNX takes modules for graphs, not for trees", "0.12.5", True),
    "graph_updates": ("nnx_graph_updates", "whether transforms of NNX propagate changes of a graph", "0.12.6", True),
    "sow_needs_capture": (
        *("nnx_sow_capture_noop", "whether ``Module.sow`` does nothing outside ``nnx.capture``"),
        *("0.12.11", False),
    ),
}
"""Options of Flax: what each is called and says, the version from which it is there, and its value."""

for name, (own, about, since, value) in OPTIONS.items():
    known = ((f">={since}", value), (f"<{since}", ABSENT))
    PROBES[name] = Probe("flax", about, partial(option, own), known, kind="option")


@probe("flax", (">=0.12.0", [4.0]), ("<0.12.0", []))
def gradients_of_any_variable() -> list[float]:
    """``nnx.grad`` of v² where v = 2 is a variable of batch statistics"""
    gradients = nnx.grad(lambda variable: variable[...] ** 2)(nnx.BatchStat(jnp.float32(2)))
    return [float(leaf) for leaf in jax.tree.leaves(gradients)]


@probe("flax", (">=0.12.1", True), ("<0.12.1", False))
def variables_are_equal_by_value() -> bool:
    """whether two variables of NNX that hold the same value are equal"""
    return bool(nnx.Param(np.float32(1)) == nnx.Param(np.float32(1)))


@probe("flax", (">=0.12.4", "out_sharding"), (">=0.11.0", "sharding_names"), ("<0.11.0", "sharding"))
def annotation_name() -> str:
    """metadata in which ``nnx.with_partitioning`` keeps the axes of a parameter"""
    made = nnx.Param(nnx.with_partitioning(lambda: np.zeros(4), ("data",), eager_sharding=False)())
    return next((name for name, value in made.get_metadata().items() if value == ("data",)), ABSENT)


@probe("flax", (">=0.12.4", ["data"]), ("<0.12.4", []))
def annotation_by_out_sharding() -> list[str | None]:
    """spec that NNX reads of ``nnx.Param(x, out_sharding=("data",))``"""
    made = nnx.Param(np.zeros(4), out_sharding=("data",), eager_sharding=False)
    return list(nnx.get_partition_spec(made).raw_value)


@probe("flax", (">=0.11.0", False))
def dropout_is_deterministic() -> bool | None:
    """``deterministic`` of ``nnx.Dropout``"""
    return inspect.signature(nnx.Dropout.__init__).parameters["deterministic"].default


@probe("flax", (">=0.11.0", False))
def batch_norm_uses_running_average() -> bool | None:
    """``use_running_average`` of ``nnx.BatchNorm``"""
    return inspect.signature(nnx.BatchNorm.__init__).parameters["use_running_average"].default


@probe("flax", (">=0.12.7", "State"), ("<0.12.7", "NoneType"))
def optimizer_update() -> str:
    """type that ``nnx.Optimizer.update`` returns"""
    seen = []

    def update() -> None:
        model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
        seen.append(type(optimizer.update(model, nnx.state(model, nnx.Param))).__name__)

    jax.eval_shape(update)
    return seen[0]


@probe("flax", (">=0.12.7", False), ("<0.12.7", True))
def rngs_have_any_name() -> bool:
    """whether ``nnx.Rngs`` returns a stream for a name such as ``__array__``"""
    return hasattr(nnx.Rngs(default=0), "__array__")


@probe("flax", (">=0.12.11", 3), (">=0.12.1", 2), ("<0.12.1", ABSENT))
def weight_norm_parameters() -> int | str:
    """parameters of ``nnx.WeightNorm`` over ``nnx.Linear``: three where its scales are trained"""
    if not hasattr(nnx, "WeightNorm"):
        return ABSENT
    seen = []

    def count() -> None:
        made = nnx.WeightNorm(nnx.Linear(1, 1, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))
        seen.append(len(jax.tree.leaves(nnx.state(made, nnx.Param))))

    jax.eval_shape(count)
    return seen[0]


@probe("flax", (">=0.11.0", [3, 3]), kind="promise")
def split_streams() -> list[int]:
    """keys that ``nnx.split_rngs(splits=3)`` makes of one, and how many of them differ"""

    def keys(rngs: nnx.Rngs) -> Any:
        return jax.random.key_data(jax.tree.leaves(nnx.state(rngs, nnx.RngKey))[0])

    split: Any = nnx.split_rngs(splits=3)
    made = np.asarray(split(keys)(nnx.Rngs(params=0)))
    return [len(made), len(np.unique(made, axis=0))]


@probe("flax", (">=0.10.0", [1, 0.5]), kind="promise")
def train_state() -> list[float]:
    """step of Linen's ``TrainState`` after one, and what is left of a parameter of 1"""
    from flax.training.train_state import TrainState

    made = TrainState.create(apply_fn=None, params={"w": np.float32(1)}, tx=optax.sgd(0.5))
    done = made.apply_gradients(grads={"w": np.float32(1)})
    return [int(done.step), float(done.params["w"])]


@probe(
    "flax",
    (">=0.12.4", {"linen": ["first"], "nnx": ["last"]}),
    (">=0.11.2", {"linen": ["first"], "nnx": []}),
    ("<0.11.2", "raises AttributeError"),
    kind="promise",
)
def repeated_rule() -> dict[str, list[str | None]]:
    """which of two rules for one logical axis counts"""
    rules = (("embed", "first"), ("embed", "last"))
    with nnx.logical_axis_rules(rules):
        made = nnx.Param(np.zeros(4), out_sharding=("embed",), eager_sharding=False)
        own = nnx.get_partition_spec(made).raw_value
    return {"linen": [*linen.logical_to_mesh_axes(("embed",), rules)], "nnx": [*own]}


@probe(
    "flax",
    (">=0.12.4", {"linen": ["a", "b"], "nnx": ["a", "b"]}),
    (">=0.10.0", {"linen": ["a", "b"], "nnx": [None, None]}),
    kind="promise",
)
def shardings_by_names() -> dict[str, list[str | None]]:
    """specs of ``linen.logical_to_mesh_sharding`` and ``nnx.get_named_sharding`` for a matrix split both ways"""
    mesh = jax.make_mesh((1, 1), ("a", "b"), devices=jax.devices()[:1])
    by_rules = linen.logical_to_mesh_sharding(PartitionSpec("x", "y"), mesh, [("x", "a"), ("y", "b")])
    made = nnx.Param(np.zeros((4, 4)), out_sharding=("a", "b"), eager_sharding=False)
    [own] = jax.tree.leaves(nnx.get_named_sharding(nnx.State({"w": made}), mesh))
    padded = [*own.spec, None, None][:2]
    return {"linen": [*by_rules.spec], "nnx": padded}


@probe("flax", (">=0.10.0", {"linen": "bfloat16", "nnx": "bfloat16"}), kind="promise")
def computed_in() -> dict[str, str]:
    """types that layers of Linen and NNX return in which ``dtype`` is bfloat16"""
    x = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    seen = {
        "linen": lambda x: linen.Dense(2, dtype=jnp.bfloat16).init_with_output(jax.random.key(0), x)[0],
        "nnx": lambda x: nnx.Linear(2, 2, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))(x),
    }
    return {name: str(jax.eval_shape(layer, x).dtype) for name, layer in seen.items()}


@probe("flax", (">=0.10.0", [[0, 1], [2, 3]]), kind="promise")
def rows_for_pmap() -> list[list[int]]:
    """rows of the first two devices of ``flax.training.common_utils.shard``"""
    from flax.training import common_utils

    count = jax.local_device_count()
    if count < 2:
        raise CannotAskError("one device")
    return np.asarray(common_utils.shard(np.arange(2 * count)))[:2].tolist()


@probe("optax", (">=0.2.4", ["bfloat16", "bfloat16", "float32"]), kind="promise")
def optimizer_types() -> list[str]:
    """types of a parameter in bfloat16 after ``optax.apply_updates``, and of Adam's moments with ``mu_dtype``"""
    optimizer = optax.adam(0.1, mu_dtype=jnp.bfloat16)

    def step(gradient: Any) -> Any:
        parameter = optax.apply_updates(gradient.astype(jnp.bfloat16), gradient)
        return parameter, optimizer.update(gradient, optimizer.init(gradient))[1]

    parameter, state = jax.eval_shape(step, np.ones(2, np.float32))
    return [str(each.dtype) for each in (parameter, state[0].mu, state[0].nu)]


def key_as_kernel(key: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """A kernel of the first number of the key that it would be drawn of."""
    return jnp.full(shape, jax.random.key_data(key)[0])


@cache
def drawn() -> dict[str, Any]:
    """What layers draw of seed 0, by one program. Each process draws it once."""

    @jax.jit
    def draw(x: Any) -> dict[str, Any]:
        key = jax.random.key(0)
        return {
            "nnx_dropout": nnx.Dropout(0.5, rngs=nnx.Rngs(0))(x, deterministic=False),
            "nnx_kernel": nnx.Linear(8, 1, rngs=nnx.Rngs(0)).kernel[...][:4, 0],
            "linen_dropout": linen.Dropout(0.5, deterministic=False).apply({}, x, rngs={"dropout": key}),
            "linen_key": linen.Dense(1, kernel_init=key_as_kernel).init(key, x)["params"]["kernel"][0, 0],
        }

    return {name: plain(value) for name, value in jax.device_get(draw(np.ones(8, np.float32))).items()}


@probe("flax", (">=0.11.0", [2.0, 0.0, 2.0, 0.0, 2.0, 2.0, 2.0, 0.0]), kind="draw")
def draws_nnx_dropout() -> list[float]:
    """eight ones after ``nnx.Dropout``"""
    return drawn()["nnx_dropout"]


@probe("flax", (">=0.11.0", [0.378, -0.343, -0.284, -0.438]), kind="draw")
def draws_nnx_kernel() -> list[float]:
    """first weights of ``nnx.Linear``"""
    return drawn()["nnx_kernel"]


@probe("flax", (">=0.10.0", [0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]), kind="draw")
def draws_linen_dropout() -> list[float]:
    """eight ones after Linen's ``Dropout``"""
    return drawn()["linen_dropout"]


@probe("flax", (">=0.10.0", 1428664606), kind="draw")
def draws_linen_key() -> int:
    """first number of the key that Linen's ``Dense`` draws its weights of"""
    return drawn()["linen_key"]
