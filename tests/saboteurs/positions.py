"""Faults of a table of positions of which each device reads the rows of its own tokens."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Communication, Contract
from tests.saboteurs.planting import plant_stranger

AXES = ("data", "context")
LENGTH, WIDTH, OUT = 16, 16, 8
TABLE, ROWS, KERNEL = 4 * LENGTH * WIDTH, 4 * LENGTH // 4 * WIDTH, 4 * WIDTH * OUT


class Positions:
    """A replicated table and kernel. Gradients of a device's rows are reduced over data, then laid together."""

    name, framework, model = "healthy_positions", "jax", "positions"
    moves = (
        Communication("all-reduce", AXES, "gradients", KERNEL),
        Communication("all-reduce", ("data",), "gradients", ROWS),
        Communication("all-reduce", ("context",), "gradients", TABLE),
        Communication("all-reduce", AXES, "metrics", 4),
    )
    reduced = "once"

    def __init__(self, data: int = 2, context: int = 4) -> None:
        self.mesh_axes = {"data": data, "context": context}
        self.gradients = jax.jit(lambda state, batch: self.both(state, batch)[1])
        self.train_step = jax.jit(self.step, donate_argnums=0)

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""
        specs = {"in_specs": (P(), P(*AXES)), "out_specs": P(), "check_vma": False}
        return jax.shard_map(self.local, mesh=self.mesh, **specs)(state, batch)

    def step(self, state: Any, batch: Any) -> Any:
        """One update."""
        value, gradients = self.both(state, batch)
        return jax.tree.map(lambda w, g: w - 0.1 * g, state, gradients), {"loss": value}

    @property
    def contract(self) -> Contract:
        """All of it is whole on every device."""
        whole = {"*": P()}
        return Contract(whole, whole, batch={"*": P(*AXES)}, computed=whole, step=self.moves)

    @property
    def mesh(self) -> Mesh:
        """Two axes."""
        shape = tuple(self.mesh_axes.values())
        return Mesh(np.array(jax.devices()[: shape[0] * shape[1]]).reshape(shape), AXES)

    def local(self, w: Any, batch: Any) -> Any:
        """The loss and the gradients of all devices."""
        length = batch["x"].shape[1]
        start = jax.lax.axis_index("context") * length

        def loss(rows: Any, kernel: Any) -> Any:
            return jnp.mean((jnp.tanh(batch["x"] + rows) @ kernel - batch["y"]) ** 2)

        rows = jax.lax.dynamic_slice_in_dim(w["positions"], start, length)
        value, (of_rows, kernel) = jax.value_and_grad(loss, (0, 1))(rows, w["kernel"])
        if self.reduced != "never":
            of_rows = jax.lax.pmean(of_rows, "data")
        of_rows /= self.mesh_axes["context"]
        table = jax.lax.dynamic_update_slice_in_dim(jnp.zeros_like(w["positions"]), of_rows, start, 0)
        table = jax.lax.psum(table, "context")
        if self.reduced == "again":
            table = jax.lax.pmean(table, "data")
        return jax.lax.pmean(value, AXES), {"positions": table, "kernel": jax.lax.pmean(kernel, AXES)}

    def init(self, key: Any) -> Any:
        """Normal."""
        positions, kernel = (jax.random.normal(key, shape) for shape in ((LENGTH, WIDTH), (WIDTH, OUT)))
        return self.load({"positions": positions, "kernel": kernel / 4})

    def load(self, parameters: Any) -> Any:
        """On every device."""
        return jax.device_put(dict(parameters), NamedSharding(self.mesh, P()))

    def batches(self, count: int) -> list[dict[str, np.ndarray]]:
        """Eight sequences."""
        draws = np.random.default_rng(0)
        return [{"x": draws.normal(size=(8, LENGTH, WIDTH)), "y": draws.normal(size=(8, LENGTH, OUT))}] * count

    def shard_batch(self, batch: Any) -> Any:
        """By sequences and tokens."""
        return jax.device_put(batch, NamedSharding(self.mesh, P(*AXES)))

    def parameters(self, state: Any) -> Any:
        """All of it."""
        return state

    def single_device(self, dtype: str) -> "Positions":
        """The same on one."""
        return type(self)(1, 1)


class ReducedAgain(Positions):
    """The table's gradient is the mean over data already."""

    name = "positions_reduced_again"
    reduced = "again"
    moves = (*Positions.moves, Communication("all-reduce", ("data",), "gradients", TABLE))


class NeverReduced(Positions):
    """Each row of devices moves its own table."""

    name = "positions_never_reduced"
    reduced = "never"
    moves = tuple(line for line in Positions.moves if line.axes != ("data",))


plant_stranger(Positions())
plant_stranger(ReducedAgain(), "COM-2")
plant_stranger(NeverReduced(), "COM-2", "NUM-2")
