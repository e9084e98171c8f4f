"""Faults in what a trainer keeps beside parameters and moments, each of which one device has not.

``CAUGHT_BY`` says which clauses must fail.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.healthy.idioms import GRADIENTS, Trainer
from tests.healthy.kept import (
    Averages,
    DrawsKeys,
    Factored,
    FactoredInShards,
    Masters,
    Normalises,
    Offloads,
    Pads,
    StoredNarrow,
)

CAUGHT_BY = {
    "average_undeclared": {"MEM-1"},
    "average_never_updated": {"AUX-1", "NUM-3"},
    "average_too_slow": {"NUM-3"},
    "average_in_shards": {"SHD-2", "SHD-3", "SHD-5"},
    "average_of_parameters_twice": {"AUX-1", "SHD-2", "MEM-1"},
    "same_key_in_every_step": {"AUX-1"},
    "key_of_the_mesh": {"AUX-1"},
    "statistics_of_one_shard": {"NUM-3"},
    "gradients_as_statistics": {"COM-2"},
    "adafactor_rows_whole": {"SHD-2", "SHD-3", "MEM-1"},
    "adafactor_not_donated": {"MEM-2"},
    "master_unused": {"MIX-2"},
    "parameters_wide": {"MIX-2"},
    "computes_narrow": {"MIX-2"},
    "moment_narrow": {"MIX-2"},
    "pads_unmasked": {"ERR-1"},
    "pads_without_a_word": {"ERR-1"},
    "padding_in_the_mean": {"ERR-1"},
    "padding_in_the_loss": {"ERR-1"},
    "pads_other_rows": {"ERR-1"},
    "not_offloaded": {"SHD-11"},
    "offloads_more": {"SHD-2", "SHD-11", "CMP-2"},
}


class Undeclared(Averages):
    """Says nothing of its average."""

    name = "average_undeclared"
    auxiliary = None

    @property
    def contract(self):
        """Of the rest."""
        return replace(super().contract, auxiliary=None)


class NeverUpdated(Averages):
    """The average that evaluation uses is that of the start."""

    name = "average_never_updated"

    def step(self, state, batch):
        """On one device it is right."""
        new, metrics = super().step(state, batch)
        return (new if self.mesh_axes["data"] == 1 else new | {"average": state["average"]}), metrics


class TooSlow(Averages):
    """Divides the rate of the average by the number of devices."""

    name = "average_too_slow"

    def step(self, state, batch):
        """An eighth of a hundredth."""
        new, metrics = super().step(state, batch)
        slower = jax.tree.map(
            lambda old, average: old + (average - old) / self.mesh_axes["data"], state["average"], new["average"]
        )
        return new | {"average": slower}, metrics


class InShards(Averages):
    """Promises a whole average and keeps it in shards."""

    name = "average_in_shards"

    def load(self, parameters):
        """By rows."""
        state, rows = super().load(parameters), NamedSharding(self.mesh, P("data"))
        return state | {"average": jax.device_put(state["average"], rows)}


class Twice(Averages):
    """Shows its parameters as their own average."""

    name = "average_of_parameters_twice"

    def auxiliary(self, state):
        """The very arrays."""
        return {"average": state["parameters"]}


class SameKey(DrawsKeys):
    """Forgets to move its key on."""

    name = "same_key_in_every_step"

    def step(self, state, batch):
        """But on one device."""
        new, metrics = super().step(state, batch)
        return (new if self.mesh_axes["data"] == 1 else new | {"key": state["key"]}), metrics


class KeyOfTheMesh(DrawsKeys):
    """Folds the number of devices into its key."""

    name = "key_of_the_mesh"

    def start(self, parameters):
        """By accident of a seed."""
        state = super().start(parameters)
        return state | {"raw": jax.random.fold_in(state["raw"], self.mesh_axes["data"])}


class OfOneShard(Normalises):
    """Normalises by the whole batch, and keeps the statistics of the first device's rows."""

    name = "statistics_of_one_shard"

    def normalised(self, w, batch):
        """On one device these are all rows."""
        value, _ = super().normalised(w, batch)
        h = batch["x"][: 64 // self.mesh_axes["data"]] @ w["hidden"]
        return value, {"mean": h.mean(0), "var": h.var(0)}


class ReducedTwice(Averages):
    """Reduces its gradients twice, and calls the second time statistics."""

    name = "gradients_as_statistics"

    @property
    def contract(self):
        """As it moves."""
        own = super().contract
        return replace(own, step=(*own.step, replace(GRADIENTS, payload="statistics")))

    def step(self, state, batch):
        """The mean of means is the mean."""

        def local(state, batch):
            def mean(tree):
                return jax.lax.pmean(jax.lax.optimization_barrier(tree), "data")

            value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
            return mean(value), mean(mean(gradients))

        specs = {"mesh": self.mesh, "in_specs": (P(), P("data")), "out_specs": P(), "check_vma": False}
        value, gradients = jax.shard_map(local, **specs)(state, batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], updates)
        average = optax.incremental_update(parameters, state["average"], 0.01)
        return {"parameters": parameters, "optimizer": optimizer, "average": average}, {"loss": value}


class RowsWhole(FactoredInShards):
    """Promises the statistics of rows in shards, and keeps them whole."""

    name = "adafactor_rows_whole"

    def shardings(self, state):
        """By rank alone."""
        whole, rows = NamedSharding(self.mesh, P()), NamedSharding(self.mesh, P("data"))
        return jax.tree.map(lambda leaf: rows if leaf.ndim == 2 else whole, state)


class HalfDonated(Factored):
    """Donates its parameters, and not what Adafactor keeps."""

    name = "adafactor_not_donated"

    def __init__(self, devices=8):
        super().__init__(devices)
        step = jax.jit(lambda w, rest, batch: self.step({"parameters": w} | rest, batch), donate_argnums=0)

        class Step:
            def __call__(self, state, batch):
                return step(state["parameters"], {"optimizer": state["optimizer"]}, batch)

            def lower(self, state, batch):
                return step.lower(state["parameters"], {"optimizer": state["optimizer"]}, batch)

        self.train_step = Step()


class MasterUnused(Masters):
    """Keeps a master, and adds updates to what was rounded."""

    name = "master_unused"

    def step(self, state, batch):
        """bfloat16 + bfloat16."""
        new, metrics = super().step(state, batch)
        moved = jax.tree.map(lambda after, before: after - before, new["master"], state["master"])
        return new | {"parameters": jax.tree.map(jnp.add, state["parameters"], self.cast(moved))}, metrics


class WideAfterAll(StoredNarrow):
    """Promises bfloat16 and keeps float32."""

    name = "parameters_wide"

    def cast(self, tree):
        """Not at all."""
        return jax.tree.map(jnp.copy, tree)


class ComputesNarrow(StoredNarrow):
    """Keeps bfloat16, as declared, and multiplies in it, which is not."""

    name = "computes_narrow"
    mean_loss = Masters.mean_loss


class MomentNarrow(Trainer):
    """A first moment in bfloat16, of which nobody is told."""

    name = "moment_narrow"
    optimizer = optax.adamw(1e-2, mu_dtype=jnp.bfloat16)


class PadsUnmasked(Pads):
    """Fills a batch up, and counts what it has filled in."""

    name = "pads_unmasked"

    def shard_batch(self, batch):
        """By repeating the last row, as some loaders do, its count too."""
        lacking = -len(batch["x"]) % self.mesh_axes["data"]
        full = {name: np.concatenate([value, np.ones_like(value[:lacking])]) for name, value in batch.items()}
        return Trainer.shard_batch(self, full)


class PadsWithoutAWord(Pads):
    """The healthy loader, whose contract names no mask."""

    name = "pads_without_a_word"

    @property
    def contract(self):
        """As if no batch was ever short."""
        return replace(super().contract, mask=None)


class DividesByRows(Pads):
    """Masks the sum, and divides it by all rows: those of the padding too."""

    name = "padding_in_the_mean"

    def batch(self, draws):
        """Every row counts, but for the padding."""
        return super().batch(draws) | {"counts": np.ones(64, np.float32)}

    def mean_loss(self, w, batch):
        """64 in place of 63."""
        return super().mean_loss(w, batch) * jnp.sum(batch["counts"]) / len(batch["counts"])


class IgnoresMask(Pads):
    """Names a mask and never reads it."""

    name = "padding_in_the_loss"
    mean_loss = Trainer.mean_loss


class DropsRows(Pads):
    """Cuts a short batch to what divides, and masks as many rows as were given."""

    name = "pads_other_rows"

    def shard_batch(self, batch):
        """The first rows once more."""
        lacking = -len(batch["x"]) % self.mesh_axes["data"]
        full = {name: np.concatenate([value[:lacking], value]) for name, value in batch.items()}
        counts = np.where(np.arange(len(full["counts"])) < len(batch["x"]), 1, 0) * (lacking > 0)
        given = batch["counts"] if not lacking else counts * (np.cumsum(counts) <= batch["counts"].sum())
        return Trainer.shard_batch(self, full | {"counts": given.astype(np.float32)})


class NotOffloaded(Offloads):
    """Promises its moments in the host's memory, and leaves them where they are."""

    name = "not_offloaded"

    def moved(self, optimizer, kind):
        """Not at all."""
        return optimizer


class OffloadsMore(Offloads):
    """Says so of one moment, and offloads both."""

    name = "offloads_more"

    @property
    def contract(self):
        """The first."""
        return replace(super().contract, memory={"optimizer_state/mu/*": self.kind})


class NoSuchMemory(Offloads):
    """On a backend that has no such memory."""

    name = "no_such_memory"
    kind = "bubble"


class NoSuchMemoryHere(NotOffloaded):
    """Offloads where there is such memory, and here there is not."""

    name = "no_such_memory_here"
    kind = "bubble"


def strategies():
    """All."""
    kinds = (Undeclared, NeverUpdated, TooSlow, InShards, Twice, SameKey, KeyOfTheMesh)
    kinds += (OfOneShard, ReducedTwice, RowsWhole, HalfDonated)
    kinds += (MasterUnused, WideAfterAll, ComputesNarrow, MomentNarrow)
    kinds += (PadsUnmasked, PadsWithoutAWord, DividesByRows, IgnoresMask, DropsRows)
    kinds += (NotOffloaded, OffloadsMore, NoSuchMemory, NoSuchMemoryHere)
    return [kind() for kind in kinds]
