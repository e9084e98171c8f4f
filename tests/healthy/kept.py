"""What healthy trainers keep beside parameters and moments: ``pytest suites/ --impl tests.healthy.kept``."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from meshproof.contract import Communication, Contract
from tests.healthy.idioms import Trainer

WHOLE = {"*": P()}


class Keeps(Trainer):
    """A trainer whose state has more, and shows it."""

    @property
    def contract(self):
        """All of it is replicated."""
        return replace(super().contract, auxiliary=WHOLE)


class Averages(Keeps):
    """An average of the parameters."""

    name = "averages"

    def start(self, parameters):
        """From the parameters themselves."""
        return super().start(parameters) | {"average": jax.tree.map(jnp.copy, parameters)}

    def step(self, state, batch):
        """A hundredth of the way."""
        new, metrics = super().step(state, batch)
        return new | {"average": optax.incremental_update(new["parameters"], state["average"], 0.01)}, metrics

    def auxiliary(self, state):
        """By the names of the parameters."""
        return {"average": state["average"]}


class DrawsWhatItKeeps(Keeps):
    """A codebook that begins with draws in the dtype of the parameters: in float64 JAX draws other numbers."""

    name = "draws_what_it_keeps"

    def start(self, parameters):
        """Of one key, whatever the parameters are."""
        book = jax.random.normal(jax.random.key(5), (8,), parameters["out"].dtype)
        return super().start(parameters) | {"book": book}

    def step(self, state, batch):
        """It follows a tenth of the way."""
        new, metrics = super().step(state, batch)
        return new | {"book": 0.9 * state["book"] + 0.1 * new["parameters"]["out"].mean(0)}, metrics

    def auxiliary(self, state):
        """The book."""
        return {"book": state["book"]}


class DrawsKeys(Keeps):
    """Random keys as JAX makes them now, and as it made them, and a count of the steps."""

    name = "draws_keys"
    make_key = staticmethod(jax.random.key)

    def init(self, key):
        """A stream of the key that it is handed."""
        return super().init(key) | {"key": self.everywhere(jax.random.fold_in(key, 1))}

    def start(self, parameters):
        """Where it is handed none."""
        raw = jax.random.PRNGKey(3)
        return super().start(parameters) | {"key": self.make_key(7), "raw": raw, "count": jnp.zeros((), jnp.int32)}

    def everywhere(self, key):
        """On every device."""
        return jax.device_put(key, jax.sharding.NamedSharding(self.mesh, P()))

    def step(self, state, batch):
        """Each moves on."""
        new, metrics = super().step(state, batch)
        key, raw = jax.random.split(state["key"], 2)[0], jax.random.split(state["raw"], 2)[0]
        return new | {"key": key, "raw": raw, "count": state["count"] + 1}, metrics | {"key": key}

    def auxiliary(self, state):
        """All three."""
        return {name: state[name] for name in ("key", "raw", "count")}


class HidesKeys(DrawsKeys):
    """Shows none of them, and promises nothing."""

    name = "hides_keys"
    auxiliary = None

    @property
    def contract(self):
        """Of the rest."""
        return replace(super().contract, auxiliary=None)


class KeysOfTheOptimizer(Trainer):
    """Keeps its keys among the optimizer's state, of a typed and of a raw kind, some of them for each layer."""

    name = "keys_of_the_optimizer"
    optimizer = optax.chain(optax.scale_by_adam(), optax.add_noise(0.0, 0.0, 5), optax.scale(-1e-2))

    def start(self, parameters):
        """With a stack of keys."""
        return super().start(parameters) | {"layers": jax.random.split(jax.random.key(1), 3)}

    def optimizer_state(self, state):
        """With them."""
        noise = state["optimizer"][1]
        return super().optimizer_state(state) | {"noise": noise.rng_key, "layers": state["layers"]}


class Normalises(Keeps):
    """Batch normalisation over all devices, with running statistics for evaluation."""

    name = "normalises"
    statistics = Communication("all-reduce", ("data",), "statistics", 4 * 3 * 32)

    @property
    def contract(self):
        """A mean, and a variance with a mean of its own; their gradients in the backward pass."""
        own = super().contract
        return replace(own, forward=(*own.forward, self.statistics), step=(*own.step, *[self.statistics] * 2))

    def start(self, parameters):
        """Of 32 features."""
        return super().start(parameters) | {"mean": jnp.zeros(32), "var": jnp.ones(32)}

    def mean_loss(self, w, batch):
        """Without what becomes of the statistics."""
        return self.normalised(w, batch)[0]

    def hidden(self, w, batch):
        """What is normalised."""
        return batch["x"] @ w["hidden"]

    def normalised(self, w, batch):
        """The loss, and mean and variance of the batch."""
        h = self.hidden(w, batch)
        mean, var = h.mean(0), h.var(0)
        out = jnp.tanh((h - mean) * jax.lax.rsqrt(var + 1e-5)) @ w["out"]
        return jnp.mean((out - batch["y"]) ** 2), {"mean": mean, "var": var}

    def step(self, state, batch):
        """Statistics as flax.nnx.BatchNorm has them, with a momentum of 0.9."""
        (value, seen), gradients = jax.value_and_grad(self.normalised, has_aux=True)(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        running = {name: 0.9 * state[name] + 0.1 * of for name, of in seen.items()}
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": optimizer} | running, {"loss": value}

    def auxiliary(self, state):
        """The running statistics."""
        return {"mean": state["mean"], "var": state["var"]}


class NormalisesBiased(Normalises):
    """With a bias before the norm, which takes it out again: AdamW makes steps of what rounding leaves of its gradient,
    and the running mean follows."""

    name = "normalises_biased"

    @property
    def contract(self):
        """The bias is reduced, too."""
        bias = Communication("all-reduce", ("data",), "gradients", 4 * 32)
        own = super().contract
        return replace(own, step=(*own.step, bias))

    def start(self, parameters):
        """From 0."""
        return super().start({"bias": jnp.zeros(32)} | parameters)

    def hidden(self, w, batch):
        """With it."""
        return super().hidden(w, batch) + w["bias"]


class ShowsNoGradients(NormalisesBiased):
    """The same, of which moments alone say that a gradient is 0."""

    name = "shows_no_gradients"

    def __init__(self, devices=8):
        super().__init__(devices)
        self.gradients = None


class Factored(Trainer):
    """Adafactor, of which a matrix has two vectors, and what it does not use is an array of one element."""

    name = "adafactor"
    optimizer = optax.adafactor(1e-2, min_dim_size_to_factor=8)

    def start(self, parameters):
        """With a bias, which is not factored."""
        return super().start(parameters | {"bias": jnp.zeros(8)} if "bias" not in parameters else parameters)

    def mean_loss(self, w, batch):
        """With the bias."""
        return jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] + w["bias"] - batch["y"]) ** 2)

    @property
    def contract(self):
        """The bias is reduced, too, and the norm of each update."""
        bias = Communication("all-reduce", ("data",), "gradients", 4 * 8)
        own = super().contract
        return replace(own, step=(*own.step, bias))

    def optimizer_state(self, state):
        """Of its first link."""
        of = state["optimizer"][0]
        return {"count": of.count, "v_row": of.v_row, "v_col": of.v_col, "v": of.v}


class FactoredInShards(Factored):
    """FSDP with Adafactor: a row statistic is sharded as the rows are, a column statistic is whole."""

    name = "adafactor_in_shards"

    def step(self, state, batch):
        """Each leaf stays as it is sharded."""
        new, metrics = super().step(state, batch)
        return jax.lax.with_sharding_constraint(new, self.shardings(new)), metrics

    @property
    def contract(self):
        """Layouts alone."""
        rows = {"bias": P(), "*": P("data", None)}
        statistics = {"v_row/bias": P(), "v_row/*": P("data"), "*": P()}
        return Contract(parameters=rows, optimizer_state=statistics, batch={"*": P("data")})

    def shardings(self, state):
        """By name and rank: what has two dimensions, and the statistics of rows."""

        def sharding(path, leaf):
            of_rows = ".v_row" in jax.tree_util.keystr(path) and leaf.size > 1
            return jax.sharding.NamedSharding(self.mesh, P("data") if of_rows or leaf.ndim == 2 else P())

        return jax.tree_util.tree_map_with_path(sharding, state)

    def load(self, parameters):
        """By those."""
        state = self.start(jax.tree.map(jnp.asarray, dict(parameters)))
        return jax.device_put(state, self.shardings(state))


PROVED = {
    "averages": {"AUX-1", "NUM-3"},
    "draws_keys": {"AUX-1", "NUM-3"},
    "normalises": {"AUX-1", "NUM-3", "COM-1", "COM-2", "COM-11"},
}
"""Clauses that must be proved, by trainer, beside those of all."""


def strategies():
    """All of them."""
    return [
        kind()
        for kind in (
            Averages,
            DrawsWhatItKeeps,
            DrawsKeys,
            HidesKeys,
            KeysOfTheOptimizer,
            Normalises,
            NormalisesBiased,
            ShowsNoGradients,
            Factored,
            FactoredInShards,
        )
    ]
