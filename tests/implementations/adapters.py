"""Variants of the optax loop in docs/adapters: less of it, and faults planted in it.

``CAUGHT_BY`` says which clauses must fail; the strategies that are not in it must fail none.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from docs.adapters.optax_loop import OPTIMIZER, DataParallel, loss, train_step
from meshproof.contract import Contract

CAUGHT_BY = {
    "forgotten_mean": {"NUM-3", "NUM-4", "NUM-6", "COM-2", "ERR-2"},
    "sum_for_mean": {"NUM-3"},
    "one_leaf_forgotten": {"NUM-3", "NUM-6", "COM-2", "ERR-2"},
    "momentum_whole": {"SHD-2", "SHD-3", "SHD-5", "MEM-1"},
    "loss_of_the_next": {"NUM-11"},
    "norm_of_one_device": {"NUM-4"},
    "truth_on_all_devices": {"NUM-2", "NUM-3", "NUM-4"},
}


class Bare:
    """What must be there and nothing else. The step itself spreads the batch that it is handed."""

    name, framework, model, mesh_axes = "bare", "jax", "regression", {"data": 8}

    def __init__(self):
        self.whole = DataParallel()
        self.mesh, self.init, self.batches = self.whole.mesh, self.whole.init, self.whole.batches
        self.train_step = jax.jit(self.step, donate_argnums=0)

    def step(self, state, batch):
        """One step."""
        rows = NamedSharding(self.mesh, PartitionSpec("data"))
        return train_step(state, jax.lax.with_sharding_constraint(batch, rows))


class Partial(DataParallel):
    """Promises where its parameters lie, and nothing else."""

    name = "partial"
    contract = Contract(parameters={"*": PartitionSpec()})


class MomentumByParameter(DataParallel):
    """Names its optimizer state as its parameters: two leaves of one path, shape and layout."""

    name = "momentum_by_parameter"

    def optimizer_state(self, state):
        """The momentum of each parameter."""
        return super().optimizer_state(state)["momentum"]

    def single_device(self, dtype):
        """Its own names."""
        return MomentumByParameter(devices=1)


class LossOfTheNext(DataParallel):
    """Reports the loss of the state that it returns, on one device too."""

    name = "loss_of_the_next"

    @staticmethod
    @jax.jit(donate_argnums=0)
    def train_step(state, batch):
        """One forward pass too late."""
        state, _ = train_step(state, batch)
        return state, {"loss": loss(state["parameters"], batch)}

    def single_device(self, dtype):
        """As wrong."""
        return LossOfTheNext(devices=1)


class NormOfOneDevice(DataParallel):
    """Reports the norm of the gradients that one device has, before they are reduced."""

    name = "norm_of_one_device"

    def __init__(self, devices=8):
        super().__init__(devices)
        self.train_step = jax.jit(self.step, donate_argnums=0)

    def step(self, state, batch):
        """The first rows' gradients, which on one device are all rows'."""
        state, metrics = train_step(state, batch)
        rows = 64 // self.mesh_axes["data"]
        own = jax.grad(loss)(state["parameters"], jax.tree.map(lambda field: field[:rows], batch))
        return state, metrics | {"norm": optax.global_norm(own)}

    def single_device(self, dtype):
        """As wrong."""
        return NormOfOneDevice(devices=1)


class OnHost(DataParallel):
    """Shows its parameters as host arrays, and nowhere those on devices."""

    name = "on_host"

    def parameters(self, state):
        """Copies."""
        return jax.tree.map(np.asarray, super().parameters(state))


class ByHand(DataParallel):
    """The step in ``shard_map``, with the gradients brought together by ``reduce``."""

    name = "by_hand"

    @staticmethod
    def reduce(gradients):
        """The mean over devices."""
        return jax.lax.pmean(gradients, "data")

    def __init__(self):
        super().__init__()
        whole, rows = PartitionSpec(), PartitionSpec("data")
        step = jax.shard_map(
            self.local_step, mesh=self.mesh, in_specs=(whole, rows), out_specs=(whole, whole), check_vma=False
        )
        self.train_step = jax.jit(step, donate_argnums=0)

    def local_step(self, state, batch):
        """One device's part."""
        value, gradients = jax.value_and_grad(loss)(state["parameters"], batch)
        updates, optimizer = OPTIMIZER.update(self.reduce(gradients), state["optimizer"])
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": optimizer}, {"loss": jax.lax.pmean(value, "data")}


class ForgottenMean(ByHand):
    """Every device trains on its own examples."""

    name = "forgotten_mean"

    @staticmethod
    def reduce(gradients):
        """Nothing."""
        return gradients


class SumForMean(ByHand):
    """Gradients eight times too long."""

    name = "sum_for_mean"

    @staticmethod
    def reduce(gradients):
        """The sum over devices."""
        return jax.lax.psum(gradients, "data")


class OneLeafForgotten(ByHand):
    """Every device trains one of the two matrices on its own examples."""

    name = "one_leaf_forgotten"

    @staticmethod
    def reduce(gradients):
        """The mean over devices, but for the last matrix."""
        return jax.lax.pmean(gradients, "data") | {"w_out": gradients["w_out"]}


class MomentumWhole(DataParallel):
    """Promises the memory of ZeRO and keeps every momentum whole."""

    name = "momentum_whole"
    contract = replace(DataParallel.contract, optimizer_state={"*": PartitionSpec("data")})


class TruthOnAllDevices(DataParallel):
    """Would be judged by itself."""

    name = "truth_on_all_devices"

    def single_device(self, dtype):
        """Not one device."""
        return DataParallel()


class Narrow(DataParallel):
    """Cannot be brought to double precision: a cast is in its way."""

    name = "narrow"

    def single_device(self, dtype):
        """In float32, whatever is asked."""
        trainer = DataParallel(devices=1)
        trainer.train_step = jax.jit(lambda state, batch: train_step(state, jax.tree.map(jnp.float32, batch)))
        return trainer


def strategies():
    """All."""
    return [
        kind()
        for kind in (
            Bare,
            Partial,
            MomentumByParameter,
            LossOfTheNext,
            NormOfOneDevice,
            OnHost,
            ByHand,
            ForgottenMean,
            SumForMean,
            OneLeafForgotten,
            MomentumWhole,
            TruthOnAllDevices,
            Narrow,
        )
    ]
