"""What healthy trainers do beside the textbook: ``pytest suites/ --impl tests.healthy.idioms``."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Communication, Contract

SHAPES = {"hidden": (16, 32), "out": (32, 8)}
GRADIENTS = Communication("all-reduce", ("data",), "gradients", 4 * (16 * 32 + 32 * 8))
LOSS = Communication("all-reduce", ("data",), "metrics", 4)
COUNT = Communication("all-reduce", ("data",), "metrics", 8)


class Trainer:
    """Data parallelism by annotation, with the members that judge it."""

    name, framework, model = "plain", "jax", "mlp"
    optimizer = optax.adamw(1e-2)
    moves = (GRADIENTS, LOSS)
    seed = 0

    def __init__(self, devices=8):
        self.mesh_axes = {"data": devices}
        self.train_step = jax.jit(self.step, donate_argnums=0)
        self.loss = jax.jit(lambda state, batch: self.mean_loss(state["parameters"], batch))
        self.gradients = jax.jit(lambda state, batch: jax.grad(self.mean_loss)(state["parameters"], batch))

    @property
    def contract(self):
        """Everything is replicated, and the batch is split."""
        whole = {"*": P()}
        return Contract(whole, whole, whole, {"*": P("data")}, forward=self.moves[1:], step=self.moves)

    @property
    def mesh(self):
        """One axis."""
        return Mesh(np.array(jax.devices()[: self.mesh_axes["data"]]), ("data",))

    def mean_loss(self, w, batch):
        """Of a hidden layer."""
        return jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2)

    def step(self, state, batch):
        """One update."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        return state | {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value,
            "norm": jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients))),
        }

    def init(self, key):
        """Normal."""
        keys = jax.random.split(key, len(SHAPES))
        return self.load({n: jax.random.normal(k, s) / 4 for k, (n, s) in zip(keys, SHAPES.items(), strict=True)})

    def load(self, parameters):
        """On every device."""
        return jax.device_put(self.start(jax.tree.map(jnp.asarray, dict(parameters))), NamedSharding(self.mesh, P()))

    def start(self, parameters):
        """A state."""
        return {"parameters": parameters, "optimizer": self.optimizer.init(parameters)}

    def batches(self, count):
        """64 rows."""
        draws = np.random.default_rng(self.seed)
        return [self.batch(draws) for _ in range(count)]

    def batch(self, draws):
        """One."""
        return {"x": draws.normal(size=(64, 16)), "y": draws.normal(size=(64, 8))}

    def shard_batch(self, batch):
        """By rows."""
        return jax.device_put(batch, NamedSharding(self.mesh, P("data")))

    def parameters(self, state):
        """By name."""
        return state["parameters"]

    def optimizer_state(self, state):
        """Adam's."""
        adam = state["optimizer"][0]
        return {"count": adam.count, "mu": adam.mu, "nu": adam.nu}

    def single_device(self, dtype):
        """The same."""
        return type(self)(devices=1)


class ReportsArrays(Trainer):
    """Reports the error of each output, the lengths of the gradients in a list, and how many rows a device has."""

    name = "reports_arrays"
    moves = (GRADIENTS, Communication("all-reduce", ("data",), "metrics", 4 * 8))

    def errors(self, w, batch):
        """Their mean, and that of each output."""
        of_each = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=0)
        return jnp.mean(of_each), of_each

    def mean_loss(self, w, batch):
        """Over the outputs."""
        return self.errors(w, batch)[0]

    def step(self, state, batch):
        """One update; a row is counted where it lies."""
        devices = self.mesh_axes["data"]
        (value, errors), gradients = jax.value_and_grad(self.errors, has_aux=True)(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value,
            "errors": errors,
            "norms": [jnp.linalg.norm(g) for g in jax.tree.leaves(gradients)],
            "rows": jnp.full(devices, 64 // devices),
        }


class TruthMask(Trainer):
    """Multiplies by a mask of truth values."""

    name = "truth_mask"
    moves = (GRADIENTS, COUNT)

    def batch(self, draws):
        """A third of the rows is padding, unevenly."""
        return super().batch(draws) | {"mask": np.arange(64) % 7 < 5}

    def mean_loss(self, w, batch):
        """Of the rows that count."""
        of = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        return jnp.sum(of * batch["mask"]) / jnp.sum(batch["mask"])


class Waves(Trainer):
    """Hidden waves, in complex numbers."""

    name = "waves"

    def mean_loss(self, w, batch):
        """Of both parts."""
        waves = jnp.exp(1j * (batch["x"] @ w["hidden"]))
        return jnp.mean(((waves.real + waves.imag) @ w["out"] - batch["y"]) ** 2)


class TypedKey(Trainer):
    """Carries a typed key for the draws of later steps."""

    name = "typed_key"

    def start(self, parameters):
        """With the key."""
        return super().start(parameters) | {"key": jax.random.key(7)}

    def step(self, state, batch):
        """Which moves on."""
        state, metrics = super().step(state, batch)
        return state | {"key": jax.random.fold_in(state["key"], 1)}, metrics


class WarnsInDouble(Trainer):
    """Calls what JAX deprecates in double precision alone, which nobody uses but the judge."""

    name = "warns_in_double"

    def mean_loss(self, w, batch):
        """As a scatter of float64 into float32."""
        if w["hidden"].dtype == jnp.float64:
            warnings.warn("scatter inputs have incompatible types", DeprecationWarning, stacklevel=2)
        return super().mean_loss(w, batch)


class Wrapped(Trainer):
    """Steps of a library with stages of its own around JAX's, as ``eqx.filter_jit`` has them."""

    name = "wrapped"

    def __init__(self, devices=8):
        super().__init__(devices)
        self.train_step, self.loss = Staged(self.train_step), Staged(self.loss)


class Staged:
    """A jitted function whose stages print themselves in another way, or not at all."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        """As it is."""
        return self.function(*arguments)

    def lower(self, *arguments):
        """JAX's stage, wrapped; its ``compile`` wraps again."""
        lowered = self.function.lower(*arguments)
        compiled = lambda: SimpleNamespace(compiled=lowered.compile())  # noqa: E731
        return SimpleNamespace(lowered=lowered, as_text=lambda: "", compile=compiled)


class Clipped(Trainer):
    """Clip, warm-up and decay of the rate, as in every recipe."""

    name = "clipped"
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10))
    )

    def optimizer_state(self, state):
        """Of the second link: Adam's, and the count of the schedule."""
        adam, _, schedule = state["optimizer"][1]
        return {"count": adam.count, "mu": adam.mu, "nu": adam.nu, "schedule": schedule.count}


class Averaged(Trainer):
    """Shows an average of its parameters beside the moments, which is where a contract has a place for it."""

    name = "averaged"

    def start(self, parameters):
        """From the parameters themselves."""
        return super().start(parameters) | {"average": jax.tree.map(jnp.copy, parameters)}

    def step(self, state, batch):
        """A hundredth of the way."""
        new, metrics = super().step(state, batch)
        average = optax.incremental_update(new["parameters"], state["average"], 0.01)
        return new | {"average": average}, metrics

    def optimizer_state(self, state):
        """And the average."""
        return super().optimizer_state(state) | {"average": state["average"]}


class Accumulated(Trainer):
    """optax.MultiSteps: every second step updates."""

    name = "multi_steps"
    optimizer = optax.MultiSteps(optax.sgd(1e-2, momentum=0.9), 2)

    def optimizer_state(self, state):
        """Its counters, momentum and the sum of gradients."""
        of = state["optimizer"]
        return {
            "mini": of.mini_step,
            "step": of.gradient_step,
            "momentum": of.inner_opt_state[0].trace,
            "sum": of.acc_grads,
        }


def strategies():
    """All of them."""
    kinds = (Trainer, ReportsArrays, TruthMask, Waves, TypedKey, WarnsInDouble, Wrapped, Clipped, Averaged, Accumulated)
    return [kind() for kind in kinds]
