"""Faults of trainers that bring no truth but their own run on one device, where the fault is not."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.healthy.idioms import GRADIENTS, LOSS, Clipped, ReportsArrays, Trainer
from tests.saboteurs.planting import plant_stranger

WHOLE = {"*": P()}


class Sick(Trainer):
    """On a mesh its gradients are changed before the optimizer sees them."""

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """What is done to them."""
        raise NotImplementedError

    def step(self, state: Any, batch: Any) -> Any:
        """One update."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
        if self.mesh_axes["data"] > 1:
            gradients = self.harmed(gradients, state, batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], updates)
        return state | {"parameters": parameters, "optimizer": optimizer}, {"loss": value}


class WrongFromStepFour(Sick):
    """What is sent in turns, as by a schedule of communication, is wrong from the second turn on."""

    name = "wrong_from_step_four"

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """A tenth too long."""
        late = state["optimizer"][0].count >= 3
        return jax.tree.map(lambda g: jnp.where(late, 1.1 * g, g), gradients)


class WrongInStepSixteen(Sick):
    """What `optax.MultiSteps` gathers over sixteen steps is wrong where it is used."""

    name = "wrong_in_step_sixteen"
    optimizer = optax.MultiSteps(optax.adamw(1e-2), 16)  # type: ignore[assignment]

    def optimizer_state(self, state: Any) -> Any:
        """Adam's moments and what was gathered."""
        adam, gathered = state["optimizer"].inner_opt_state[0], state["optimizer"].acc_grads
        return {"mu": adam.mu, "nu": adam.nu, "gathered": gathered}

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """Two times too long, once."""
        last = state["optimizer"].mini_step == 15
        return jax.tree.map(lambda g: jnp.where(last, 2 * g, g), gradients)


class ClippedByTheShard(Sick):
    """The threshold is held to the norm of a shard's gradients, which long ones alone reach."""

    name = "clipped_by_the_shard"

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """A clip that one device does not have."""
        clipped, _ = optax.clip_by_global_norm(50.0).update(gradients, optax.EmptyState())
        return clipped


class ClippedWithoutMoments(ClippedByTheShard):
    """The same of SGD, which keeps nothing: the length of an update alone shows it."""

    name = "clipped_without_moments"
    optimizer = optax.sgd(1e-3)
    optimizer_state: Any = None

    @property
    def contract(self) -> Contract:
        """Nothing of an optimizer."""
        return Contract(WHOLE, WHOLE, batch={"*": P("data")})


class ArrayOfAShard(ReportsArrays):
    """Trains well, and reports the errors of some rows as those of all."""

    name = "array_of_a_shard"

    def step(self, state: Any, batch: Any) -> Any:
        """One update, as a dashboard shows it."""
        state, metrics = super().step(state, batch)
        return state, metrics | {"errors": metrics["errors"] * (1.01 if self.mesh_axes["data"] > 1 else 1.0)}


class LayoutForgotten(Trainer):
    """Trains a kernel whose gradient its contract has no layout for, as if it were frozen."""

    name = "layout_forgotten"

    @property
    def contract(self) -> Contract:
        """Of one kernel's."""
        return replace(super().contract, gradients={"out": P()})


class ScheduleCountsDevices(Clipped):
    """The warm-up is over after an eighth of its steps; the rate of the first ones is the same."""

    name = "schedule_counts_devices"
    moves = (GRADIENTS, LOSS)

    def __init__(self, devices: int = 8) -> None:
        ends = 240 // devices
        rate = optax.join_schedules([optax.constant_schedule(1e-3), optax.constant_schedule(1e-2)], [ends])
        self.optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate))
        super().__init__(devices)


class DecayForgotten(Trainer):
    """No weight decay on a mesh, of 1e-5: below rounding in a few steps."""

    name = "decay_forgotten"

    def __init__(self, devices: int = 8) -> None:
        decay = 1e-5 if devices == 1 else 0.0
        self.optimizer = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2, weight_decay=decay)
        super().__init__(devices)

    def optimizer_state(self, state: Any) -> Any:
        """Adam's moments."""
        adam = state["optimizer"].inner_state[0]
        return {"count": adam.count, "mu": adam.mu, "nu": adam.nu}


class ScaleGrowsLate(Trainer):
    """A scale that doubles after five steps counts devices on a mesh; no loss shows it."""

    name = "scale_grows_late"

    @property
    def contract(self) -> Contract:
        """With the scale, and a budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")}, auxiliary=WHOLE)

    def start(self, parameters: Any) -> Any:
        """From 1,024."""
        return super().start(parameters) | {"scale": jnp.float32(1024), "good": jnp.int32(0)}

    def step(self, state: Any, batch: Any) -> Any:
        """Every step is a good one."""
        new, metrics = super().step(state, batch)
        grows = state["good"] + 1 >= 5 * self.mesh_axes["data"]
        scale = {"scale": state["scale"] * jnp.where(grows, 2, 1), "good": jnp.where(grows, 0, state["good"] + 1)}
        return new | scale, metrics

    def auxiliary(self, state: Any) -> Any:
        """Both."""
        return {"scale": state["scale"], "good": state["good"]}


class TooManyForAnExpert(Sick):
    """An expert drops what is more than twice its share of a device's rows: no balanced batch shows it."""

    name = "too_many_for_an_expert"

    @property
    def contract(self) -> Contract:
        """Routed, and a budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")}, routed=True)

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Of the rows that an expert has room for."""
        room = 64 if self.mesh_axes["data"] == 1 else 24
        expert = jnp.argmax(batch["x"][:, :4], axis=-1)
        place = jnp.take_along_axis(jnp.cumsum(jax.nn.one_hot(expert, 4), axis=0), expert[:, None], axis=1)[:, 0]
        rows = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        return jnp.mean(jnp.where(place <= room, rows, 0))

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """They are wrong already."""
        return gradients


class DriftsFromStepFive(Trainer):
    """From the fifth step on, each device keeps the update of its own rows."""

    name = "drifts_from_step_five"

    def step(self, state: Any, batch: Any) -> Any:
        """One update."""

        def local(state: Any, batch: Any) -> Any:
            value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
            shared = jax.lax.pmean(gradients, "data")
            late = state["optimizer"][0].count >= 4
            gradients = jax.tree.map(lambda own, all_of: jnp.where(late, own, all_of), gradients, shared)
            updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
            parameters = optax.apply_updates(state["parameters"], updates)
            return {"parameters": parameters, "optimizer": optimizer}, {"loss": jax.lax.pmean(value, "data")}

        specs = {"in_specs": (P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(state, batch)


class Phased:
    """A step with a phase that is static: jitted, and compiled again where the phase changes."""

    def __init__(self, step: Any) -> None:
        self.step = jax.jit(lambda state, batch, phase: step(state, batch), donate_argnums=0, static_argnums=2)

    def lower(self, state: Any, batch: Any) -> Any:
        """Of the first phase."""
        return self.step.lower(state, batch, 0)

    def __call__(self, state: Any, batch: Any) -> Any:
        """Phases are five steps long."""
        return self.step(state, batch, int(state["optimizer"][0].count) // 5)


class CompilesAtStepSix(Trainer):
    """Its second phase is compiled in the middle of training."""

    name = "compiles_at_step_six"

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.train_step = Phased(self.step)


class Refuses:
    """A jitted step behind a check of its loss on the host."""

    def __init__(self, step: Any) -> None:
        self.step = step
        self.lower = step.lower

    def __call__(self, state: Any, batch: Any) -> Any:
        """Raises ``FloatingPointError`` for a loss that is not finite."""
        state, metrics = self.step(state, batch)
        if not np.isfinite(np.asarray(metrics["loss"])):
            raise FloatingPointError("the loss is not finite")
        return state, metrics


class RefusesWhatIsNotFinite(Trainer):
    """Ends its training where the loss is not finite."""

    name = "healthy_refuses_what_is_not_finite"

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.train_step = Refuses(self.train_step)


class InfiniteFromStepFive(Sick):
    """A rate that is divided by nothing left."""

    name = "infinite_from_step_five"

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """By 0, once."""
        return jax.tree.map(lambda g: g / (state["optimizer"][0].count != 4), gradients)


class LeavesRowsOut(Trainer):
    """Trains on as many rows as its devices divide."""

    name = "leaves_rows_out"

    def shard_batch(self, batch: Any) -> Any:
        """Of each field."""
        rows = len(batch["x"]) // self.mesh.size * self.mesh.size
        return super().shard_batch({name: field[:rows] for name, field in batch.items()})


for kind in (
    WrongFromStepFour,
    WrongInStepSixteen,
    ClippedByTheShard,
    ClippedWithoutMoments,
    ScheduleCountsDevices,
    DecayForgotten,
    ScaleGrowsLate,
    TooManyForAnExpert,
):
    plant_stranger(kind(), "NUM-13")
plant_stranger(ArrayOfAShard(), "NUM-4", "NUM-13")
plant_stranger(LayoutForgotten(), "MEM-1", "COM-2")
plant_stranger(DriftsFromStepFive(), "NUM-6")
plant_stranger(CompilesAtStepSix(), "CMP-1")
plant_stranger(InfiniteFromStepFive(), "NUM-10")
plant_stranger(RefusesWhatIsNotFinite())
plant_stranger(LeavesRowsOut(), "ERR-1")
