"""Trainers that are right in process 0, and in process 1 do what their name says: for ``pytest --distributed``."""

from dataclasses import replace
from functools import cached_property

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from docs.adapters.optax_loop import DataParallel
from reference_impl.forms.annotated import JaxForm
from reference_impl.strategies import data_parallel, fsdp
from reference_impl.truth import Momentum
from tests.implementations.lockstep import harm
from tests.saboteurs.planting import DATA


class Stepping:
    """A compiled step, and what comes after it in a process."""

    def __init__(self, step, after):
        self.step, self.after, self.lower = step, after, step.lower

    def __call__(self, state, batch):
        """One step."""
        state, metrics = self.step(state, batch)
        return self.after(state), metrics


class Drifts(JaxForm):
    """Its copies are other numbers in process 1, as where each process seeds with its own number."""

    @cached_property
    def train_step(self):
        """Scaled by its process."""

        def own(array):
            scaled = [shard.data * (1 + 0.001 * jax.process_index()) for shard in array.addressable_shards]
            return jax.make_array_from_single_device_arrays(array.shape, array.sharding, scaled)

        return Stepping(
            super().train_step, lambda state: state._replace(parameters=jax.tree.map(own, state.parameters))
        )


class Harmed(JaxForm):
    """Comes to harm in process 1 after its first step: it is killed or stopped, or raises."""

    @cached_property
    def train_step(self):
        """Where there is a process 1."""

        def after(state):
            if jax.process_index() == 1:
                harm(self.name)
            return state

        return Stepping(super().train_step, after)


class OwnShards(JaxForm):
    """Process 0 writes what it holds: all there is where it is the only one, and else its own shards."""

    def save(self, state, folder):
        """One file; the others wait for it."""
        if jax.process_index() == 0:
            folder.mkdir(parents=True)
            np.savez(folder / "state.npz", *map(held, jax.tree.leaves(state)))
        multihost_utils.sync_global_devices(str(folder))

    def restore(self, folder):
        """Each process reads its own shards of it."""
        kinds, structure = jax.tree.flatten(self.abstract_state())
        with np.load(folder / "state.npz") as file:
            read = [
                jax.make_array_from_callback(kind.shape, kind.sharding, file[name].__getitem__)
                for kind, name in zip(kinds, file.files, strict=True)
            ]
        return structure.unflatten(read)


def held(array):
    """Its numbers, as far as this process has them."""
    found = np.zeros(array.shape, array.dtype)
    for shard in array.addressable_shards:
        found[shard.index] = shard.data
    return found


class Stranger(DataParallel):
    """It brings no truth: each process asks its own run on one device, which is one of its own."""

    name = "stranger"


class OtherRows(Stranger):
    """In process 1 inputs have the labels of other rows."""

    name = "other_rows"

    def shard_batch(self, batch):
        """As each process reads it."""
        read = batch | {"y": np.roll(batch["y"], jax.process_index(), 0)}
        rows = NamedSharding(self.mesh, PartitionSpec("data"))
        return {
            name: jax.make_array_from_callback(field.shape, rows, field.__getitem__) for name, field in read.items()
        }


def strategies():
    """Those that end their process first: what comes after them is observed all the same."""
    for name, form, axes in (
        ("SIGKILL", Harmed, DATA),
        ("SIGSTOP", Harmed, DATA),
        ("raise", Harmed, DATA),
        ("drifts", Drifts, DATA),
        ("healthy", JaxForm, DATA),
        ("small", JaxForm, {"data": 4}),
    ):
        yield form(replace(data_parallel.PAGE, name=name), axes, Momentum())
    yield JaxForm(replace(fsdp.PAGE, name="saves"), DATA, Momentum())
    yield OwnShards(replace(fsdp.PAGE, name="saves_its_own"), DATA, Momentum(), variant="own_format")
    yield from (Stranger(), OtherRows())
