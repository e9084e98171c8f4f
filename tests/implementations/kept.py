"""Faults in what a trainer keeps beside parameters and moments, each of which one device has not.

``CAUGHT_BY`` says which clauses must fail.
"""

from dataclasses import replace

import jax
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.healthy.idioms import GRADIENTS
from tests.healthy.kept import Averages, DrawsKeys, Factored, FactoredInShards, Normalises, NormalisesBiased

CAUGHT_BY = {
    "average_undeclared": {"MEM-1"},
    "average_never_updated": {"AUX-1", "NUM-3"},
    "average_too_slow": {"NUM-3"},
    "average_in_shards": {"SHD-2", "SHD-3", "SHD-5"},
    "average_of_parameters_twice": {"AUX-1", "SHD-2", "MEM-1"},
    "same_key_in_every_step": {"AUX-1"},
    "key_of_the_mesh": {"AUX-1"},
    "statistics_of_one_shard": {"NUM-3"},
    "biased_statistics_of_one_shard": {"NUM-3"},
    "gradients_as_statistics": {"COM-2"},
    "adafactor_rows_whole": {"SHD-2", "SHD-3", "MEM-1"},
    "adafactor_not_donated": {"MEM-2"},
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
        value, _ = Normalises.normalised(self, w, batch)
        h = self.hidden(w, {"x": batch["x"][: 64 // self.mesh_axes["data"]]})
        return value, {"mean": h.mean(0), "var": h.var(0)}


class BiasedOfOneShard(NormalisesBiased):
    """The same, where the running mean may follow a bias."""

    name = "biased_statistics_of_one_shard"
    normalised = OfOneShard.normalised


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


def strategies():
    """All."""
    kinds = (Undeclared, NeverUpdated, TooSlow, InShards, Twice, SameKey, KeyOfTheMesh)
    kinds += (OfOneShard, BiasedOfOneShard, ReducedTwice, RowsWhole, HalfDonated)
    return [kind() for kind in kinds]
