"""Ten models of today in a line or five each, trained by one optax loop under data parallelism.

A model is what it starts from, by seed, and a mean loss of a batch. Batches have 64 rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

ROWS, WIDTH, CLASSES, LENGTH = 64, 16, 8, 6


@dataclass(frozen=True)
class Kind:
    """A model: the shapes of its parameters, its loss, and whether its inputs are tokens."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    loss: Callable[[Any, Any], Any]
    tokens: bool = False

    def start(self, seed: int) -> dict[str, np.ndarray]:
        """Start values, float32, scaled by the square root of what is summed."""
        draws = np.random.default_rng([seed, 1])
        return {
            name: (draws.normal(size=shape) / np.sqrt(shape[0] if len(shape) > 1 else 4)).astype(np.float32)
            for name, shape in self.shapes.items()
        }

    def batches(self, seed: int, count: int) -> list[dict[str, np.ndarray]]:
        """``x`` (64, 16) float32 or (64, 6) int32, ``y`` (64,) int32."""
        draws = np.random.default_rng([seed, 2])

        def x():
            if self.tokens:
                return draws.integers(0, CLASSES, size=(ROWS, LENGTH)).astype(np.int32)
            return draws.normal(size=(ROWS, WIDTH)).astype(np.float32)

        return [{"x": x(), "y": draws.integers(0, CLASSES, size=ROWS).astype(np.int32)} for _ in range(count)]


def cross_entropy(logits, labels):
    """Its mean over rows."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def normalise(x):
    """Layer norm without parameters."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def attend(w, x):
    """One head, causal, of (rows, length, width)."""
    q, k, v = (x @ w[name] for name in ("q", "k", "v"))
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
    hidden = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(hidden, scores, -1e9), axis=-1) @ v


def route(w, x):
    """The best of four experts for each row, weighted by its probability."""
    gates = jax.nn.softmax(x @ w["gate"])
    best = jax.nn.one_hot(gates.argmax(-1), 4, dtype=x.dtype)
    outputs = jnp.einsum("bd,edf->bef", x, w["experts"])
    return jnp.einsum("be,bef->bf", best * gates, jax.nn.gelu(outputs)) @ w["out"]


SQUARE, OUT = {"in": (WIDTH, 32)}, {"out": (32, CLASSES)}
KINDS = [
    Kind("regression", {"w": (WIDTH, 1)}, lambda w, b: jnp.mean((b["x"] @ w["w"])[:, 0] ** 2 - b["y"])),
    Kind("softmax", {"w": (WIDTH, CLASSES)}, lambda w, b: cross_entropy(b["x"] @ w["w"], b["y"])),
    Kind("relu", SQUARE | OUT, lambda w, b: cross_entropy(jax.nn.relu(b["x"] @ w["in"]) @ w["out"], b["y"])),
    Kind("tanh", SQUARE | OUT, lambda w, b: cross_entropy(jnp.tanh(b["x"] @ w["in"]) @ w["out"], b["y"])),
    Kind(
        "layer_norm",
        SQUARE | OUT | {"scale": (32,)},
        lambda w, b: cross_entropy((w["scale"] * normalise(b["x"] @ w["in"])) @ w["out"], b["y"]),
    ),
    Kind(
        "gated",
        SQUARE | OUT | {"gate": (WIDTH, 32)},
        lambda w, b: cross_entropy((jax.nn.silu(b["x"] @ w["gate"]) * (b["x"] @ w["in"])) @ w["out"], b["y"]),
    ),
    Kind(
        "huber", SQUARE | OUT, lambda w, b: optax.huber_loss((b["x"] @ w["in"] @ w["out"])[:, 0], 1.0 * b["y"]).mean()
    ),
    Kind(
        "experts",
        {"gate": (WIDTH, 4), "experts": (4, WIDTH, 32)} | OUT,
        lambda w, b: cross_entropy(route(w, b["x"]), b["y"]),
    ),
    Kind(
        "attention",
        {"table": (CLASSES, WIDTH)} | dict.fromkeys("qkv", (WIDTH, WIDTH)) | {"out": (WIDTH, CLASSES)},
        lambda w, b: cross_entropy(attend(w, w["table"][b["x"]]).mean(1) @ w["out"], b["y"]),
        tokens=True,
    ),
    Kind(
        "tied_embedding",
        {"table": (CLASSES, WIDTH), "in": (WIDTH, WIDTH)},
        lambda w, b: cross_entropy(jnp.tanh(w["table"][b["x"]].mean(1) @ w["in"]) @ w["table"].T, b["y"]),
        tokens=True,
    ),
]

OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, weight_decay=1e-2))


@cache
def programs(name: str, harm: Callable[[Any], Any] | None) -> tuple[Any, Any, Any]:
    """The jitted start, step and gradients of a kind, shared by all its trainers; ``harm`` changes the gradients."""
    [kind] = [kind for kind in KINDS if kind.name == name]

    def gradients(state, batch):
        value, gradients = jax.value_and_grad(kind.loss)(state["parameters"], batch)
        return value, gradients if harm is None else harm(gradients)

    def step(state, batch):
        value, of = gradients(state, batch)
        updates, optimizer = OPTIMIZER.update(of, state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value
        }

    start = jax.jit(lambda parameters: {"parameters": parameters, "optimizer": OPTIMIZER.init(parameters)})
    return start, jax.jit(step, donate_argnums=0), jax.jit(lambda state, batch: gradients(state, batch)[1])


class Trainer:
    """A kind on some devices, from one seed."""

    def __init__(self, kind: Kind, devices: int, seed: int = 0, harm: Callable[[Any], Any] | None = None) -> None:
        self.kind, self.seed, self.mesh_axes = kind, seed, {"data": devices}
        self.start, self.train_step, self.gradients = programs(kind.name, harm)

    @property
    def mesh(self):
        """All of them in one axis."""
        return Mesh(np.array(jax.devices()[: self.mesh_axes["data"]]), ("data",))

    def load(self, parameters):
        """A state on every device."""
        return self.start(jax.device_put(parameters, NamedSharding(self.mesh, P())))

    def shard_batch(self, batch):
        """Rows over devices."""
        return jax.device_put(batch, NamedSharding(self.mesh, P("data")))

    def parameters(self, state):
        """By name."""
        return state["parameters"]

    def optimizer_state(self, state):
        """Both moments."""
        adam = state["optimizer"][1][0]
        return {"mu": adam.mu, "nu": adam.nu}
