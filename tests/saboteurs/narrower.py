"""Faults of trainers that compute in 16 bits, of which their own run on one device says what is allowed."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.healthy.idioms import Trainer
from tests.saboteurs.planting import plant_stranger

WHOLE = {"*": P()}


class Halves(Trainer):
    """Computes in bfloat16."""

    name, dtype = "healthy_halves", "bfloat16"

    @property
    def contract(self) -> Contract:
        """Which it says; a budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")}, compute_dtype=self.dtype)

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Products in bfloat16, the loss in float32."""
        half = jax.tree.map(lambda value: value.astype(jnp.bfloat16), (w, batch["x"]))
        out = jnp.tanh(half[1] @ half[0]["hidden"]) @ half[0]["out"]
        return jnp.mean((out.astype(jnp.float32) - batch["y"]) ** 2)


class AccumulatesHalves(Halves):
    """Gradients of two steps, and a rate that no step changes: bfloat16 could hold what both have."""

    name = "healthy_accumulates_halves"
    optimizer = optax.MultiSteps(optax.adamw(1e-2), 2)

    def start(self, parameters: Any) -> Any:
        """With the rate."""
        return super().start(parameters) | {"rate": jnp.asarray(0.125, parameters["out"].dtype)}

    def optimizer_state(self, state: Any) -> Any:
        """All of it."""
        held, adam = state["optimizer"], state["optimizer"].inner_opt_state[0]
        return {"sum": held.acc_grads, "mu": adam.mu, "nu": adam.nu, "count": adam.count, "rate": state["rate"]}


class FreezesHalves(Halves):
    """Its first layer comes from a checkpoint in bfloat16, and is not trained."""

    name = "healthy_freezes_halves"
    optimizer = optax.adam(1e-2)

    def start(self, parameters: Any) -> Any:
        """As it is stored."""
        return super().start(parameters | {"hidden": rounded(parameters["hidden"])})

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Without a gradient of it."""
        return super().mean_loss(w | {"hidden": jax.lax.stop_gradient(w["hidden"])}, batch)


class HalvesThatStay(Halves):
    """Keeps its masters in bfloat16, where updates as short as these are lost, on one device too."""

    name = "halves_that_stay"
    optimizer = optax.adamw(1e-6)

    def start(self, parameters: Any) -> Any:
        """Rounded."""
        return super().start(rounded(parameters))

    def step(self, state: Any, batch: Any) -> Any:
        """Rounded again."""
        new, metrics = super().step(state, batch)
        return new | {"parameters": rounded(new["parameters"])}, metrics


def rounded(parameters: Any) -> Any:
    """In the digits of bfloat16."""
    return jax.tree.map(lambda value: value.astype(jnp.bfloat16).astype(value.dtype), parameters)


class HalvesTooLong(Halves):
    """And its gradients are too long on a mesh."""

    name = "halves_too_long"

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        times = 2 if devices > 1 else 1
        alone = self.gradients
        self.gradients = jax.jit(lambda state, batch: jax.tree.map(lambda g: times * g, alone(state, batch)))


class CastsInputsAlone(Halves):
    """Casts what it multiplies by parameters, which makes a product of float32."""

    name = "casts_inputs_alone"

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """As in a layer without a ``dtype``."""
        out = jnp.tanh(batch["x"].astype(jnp.bfloat16) @ w["hidden"]) @ w["out"]
        return jnp.mean((out - batch["y"]) ** 2)


class OtherHalves(Halves):
    """Declares float16, and multiplies in bfloat16."""

    name, dtype = "other_halves", "float16"


plant_stranger(Halves())
plant_stranger(AccumulatesHalves())
plant_stranger(FreezesHalves())
plant_stranger(HalvesThatStay(), "MIX-1")
plant_stranger(HalvesTooLong(), "MIX-1")
plant_stranger(CastsInputsAlone(), "MIX-3")
plant_stranger(OtherHalves(), "MIX-2")
