"""How healthy trainers keep and move what they have: ``pytest suites/ --impl tests.healthy.stored``."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P
from orbax.checkpoint import v1 as ocp

from meshproof.contract import Communication
from tests.healthy.idioms import COUNT, GRADIENTS, LOSS, Trainer
from tests.healthy.kept import Averages, DrawsKeys, Keeps, Normalises


class Masters(Keeps):
    """Parameters in bfloat16, of which float32 masters are trained; products in bfloat16."""

    name = "masters"

    @property
    def contract(self):
        """A gradient is reduced before it is cast, for the CPU: both are listed as XLA has them there."""
        narrow = {"parameters/*": "bfloat16"}
        return replace(super().contract, dtypes=narrow, compute_dtype="bfloat16")

    def start(self, parameters):
        """The master is what was drawn."""
        master = jax.tree.map(lambda w: w.astype(jnp.float32), parameters)
        return {"parameters": self.cast(master), "master": master, "optimizer": self.optimizer.init(master)}

    def cast(self, tree):
        """To what is computed with."""
        return jax.tree.map(lambda w: w.astype(jnp.bfloat16), tree)

    def mean_loss(self, w, batch):
        """A float32 loss."""
        out = jnp.tanh(batch["x"].astype(jnp.bfloat16) @ w["hidden"]) @ w["out"]
        return jnp.mean((out.astype(jnp.float32) - batch["y"]) ** 2)

    def step(self, state, batch):
        """The master moves, and is rounded."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
        wide = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
        updates, optimizer = self.optimizer.update(wide, state["optimizer"], state["master"])
        master = optax.apply_updates(state["master"], updates)
        return {"parameters": self.cast(master), "master": master, "optimizer": optimizer}, {"loss": value}

    def auxiliary(self, state):
        """The masters."""
        return {"master": state["master"]}


class StoredNarrow(Masters):
    """The same, with products in float32, and a first moment in bfloat16."""

    name = "stored_narrow"
    optimizer = optax.adamw(1e-2, mu_dtype=jnp.bfloat16)

    @property
    def contract(self):
        """Says so."""
        narrow = {"parameters/*": "bfloat16", "optimizer_state/mu/*": "bfloat16"}
        return replace(super().contract, dtypes=narrow, compute_dtype="float32")

    def mean_loss(self, w, batch):
        """Cast once, where it is used."""
        return Trainer.mean_loss(self, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), w), batch)


class FindsLargest(Keeps):
    """The largest output of a batch, as a scale of int8 is made of it. XLA:CPU forgets a NaN that one device has."""

    name = "finds_largest"

    @property
    def contract(self):
        """A number more."""
        own = super().contract
        return replace(own, step=(*own.step, Communication("all-reduce", ("data",), "statistics", 4)))

    def outputs(self, w, batch):
        """Of each row."""
        return jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"]

    def start(self, parameters):
        """None yet."""
        return super().start(parameters) | {"largest": jnp.zeros(())}

    def step(self, state, batch):
        """Of the outputs before it."""
        new, metrics = super().step(state, batch)
        return new | {"largest": jnp.abs(self.outputs(state["parameters"], batch)).max()}, metrics

    def auxiliary(self, state):
        """That one."""
        return {"largest": state["largest"]}


class ScalesItsLoss(Keeps):
    """Products in float16, and a loss scale that halves where a gradient overflows, and doubles after 100 steps."""

    name = "scales_its_loss"

    def __init__(self, devices=8):
        super().__init__(devices)
        self.gradients = jax.jit(lambda state, batch: self.scaled(state, batch)[1])

    @property
    def contract(self):
        """Says in what."""
        return replace(super().contract, compute_dtype="float16")

    def start(self, parameters):
        """Large enough that no gradient underflows."""
        scale = {"scale": jnp.float32(2.0**12), "good": jnp.int32(0)}
        return super().start(parameters) | scale

    def auxiliary(self, state):
        """The scale, and for how long it has been right."""
        return {"scale": state["scale"], "good": state["good"]}

    def mean_loss(self, w, batch):
        """A float32 loss."""
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), (w, batch["x"]))
        out = jnp.tanh(half[1] @ half[0]["hidden"]) @ half[0]["out"]
        return jnp.mean((out.astype(jnp.float32) - batch["y"]) ** 2)

    def scaled(self, state, batch):
        """The loss, and its gradients, which were longer on their way."""
        scale = state["scale"]
        value, gradients = jax.value_and_grad(lambda w: self.mean_loss(w, batch) * scale)(state["parameters"])
        return value / scale, jax.tree.map(lambda g: g / scale, gradients)

    def step(self, state, batch):
        """Nothing moves where a gradient is not finite."""
        value, gradients = self.scaled(state, batch)
        finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        old = {"parameters": state["parameters"], "optimizer": state["optimizer"]}
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        new = {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}
        kept = jax.tree.map(lambda one, other: jnp.where(finite, one, other), new, old)
        good = jnp.where(finite, state["good"] + 1, 0)
        grown = jnp.where(good >= 100, 2 * state["scale"], state["scale"])
        scale = jnp.where(finite, grown, state["scale"] / 2)
        return kept | {"scale": scale, "good": jnp.where(good >= 100, 0, good)}, {"loss": value}


class Pads(Trainer):
    """A loader that fills the last batch up, and says which of its rows count."""

    name = "pads"
    moves = (GRADIENTS, COUNT)

    @property
    def contract(self):
        """With its mask."""
        return replace(super().contract, mask="counts")

    def batch(self, draws):
        """Some rows are padding from the start, unevenly."""
        return super().batch(draws) | {"counts": (np.arange(64) % 7 < 5).astype(np.float32)}

    def shard_batch(self, batch):
        """Zeros to the next multiple of the devices."""
        lacking = -len(batch["x"]) % self.mesh_axes["data"]
        widths = {name: [(0, lacking)] + [(0, 0)] * (np.ndim(value) - 1) for name, value in batch.items()}
        return super().shard_batch({name: np.pad(value, widths[name]) for name, value in batch.items()})

    def mean_loss(self, w, batch):
        """Of the rows that count."""
        of = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        return jnp.sum(of * batch["counts"]) / jnp.sum(batch["counts"])


class Offloads(Trainer):
    """Keeps Adam's moments in the host's memory between steps."""

    name = "offloads"
    kind = "pinned_host"

    @property
    def contract(self):
        """Says where."""
        return replace(super().contract, memory={f"optimizer_state/{moment}/*": self.kind for moment in ("mu", "nu")})

    def moved(self, optimizer, kind):
        """Both moments, to a kind of memory."""
        there = jax.sharding.NamedSharding(self.mesh, P(), memory_kind=kind)
        adam = optimizer[0]
        mu, nu = jax.device_put((adam.mu, adam.nu), there)
        return (adam._replace(mu=mu, nu=nu), *optimizer[1:])

    def load(self, parameters):
        """To the host at once."""
        state = super().load(parameters)
        return state | {"optimizer": self.moved(state["optimizer"], self.kind)}

    def step(self, state, batch):
        """There and back."""
        new, metrics = super().step(state | {"optimizer": self.moved(state["optimizer"], "device")}, batch)
        return new | {"optimizer": self.moved(new["optimizer"], self.kind)}, metrics


class Saves(Trainer):
    """Checkpoints by Orbax, as docs/adapters.md has them."""

    name = "saves"

    def abstract_state(self):
        """Of what ``init`` makes."""
        with_sharding = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)  # noqa: E731
        return jax.tree.map(with_sharding, self.init(jax.random.key(0)))

    def save(self, state, folder):
        """All of it."""
        ocp.save(folder, state)

    def save_async(self, state, folder):
        """What Orbax returns."""
        return ocp.save_async(folder, state)

    def restore(self, folder):
        """To where it was."""
        return ocp.load(folder, self.abstract_state())


class SavesItsAverage(Saves, Averages):
    """An average of the parameters is in the checkpoint."""

    name = "saves_its_average"


class SavesItsKeys(Saves, DrawsKeys):
    """Random keys, typed and not, and a counter are."""

    name = "saves_its_keys"


class SavesItsStatistics(Saves, Normalises):
    """Running statistics of batches are."""

    name = "saves_its_statistics"


class Compresses(Trainer):
    """Reduces its gradients in bfloat16, and says so."""

    name = "compresses"
    moved = "bfloat16"
    moves = (Communication("all-reduce", ("data",), "gradients", 2 * (16 * 32 + 32 * 8), "bfloat16"), LOSS)

    def step(self, state, batch):
        """Each device's gradients are cast, reduced, and cast back."""

        def local(w, batch):
            value, gradients = jax.value_and_grad(self.mean_loss)(w, batch)
            cast = jax.tree.map(lambda g: g.astype(self.moved), gradients)
            return jax.lax.pmean(value, "data"), jax.tree.map(lambda g: jax.lax.psum(g, "data"), cast)

        specs = {"mesh": self.mesh, "in_specs": (P(), P("data")), "out_specs": P(), "check_vma": False}
        value, summed = jax.shard_map(local, **specs)(state["parameters"], batch)
        gradients = jax.tree.map(lambda g: g.astype(jnp.float32) / self.mesh_axes["data"], summed)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value
        }


PROVED = {
    "pads": {"ERR-1", "NUM-3"},
    "offloads": {"SHD-11", "CMP-2", "NUM-3"},
    "compresses": {"COM-2", "COM-10", "COM-11"},
    "finds_largest": {"AUX-1", "COM-2", "NUM-13"},
    "scales_its_loss": {"AUX-1", "MIX-1", "MIX-2", "NUM-13"},
    **{
        name: {"CKP-1", "CKP-2", "CKP-3", "CKP-5"}
        for name in ("saves", "saves_its_average", "saves_its_keys", "saves_its_statistics")
    },
    "masters": {"AUX-1", "COM-2", "COM-11"},
    "stored_narrow": {"AUX-1", "COM-2", "COM-11"},
}
"""Clauses that must be proved, by trainer. One device cannot judge the numbers of what is kept or moved in bfloat16."""


def strategies():
    """All of them."""
    saving = (Saves, SavesItsAverage, SavesItsKeys, SavesItsStatistics)
    return [
        kind() for kind in (Masters, StoredNarrow, FindsLargest, ScalesItsLoss, *saving, Pads, Offloads, Compresses)
    ]
