"""Faults in what is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from reference_impl.cases.modified import MIXED
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.models.mlp import MLP
from reference_impl.modifiers import Modified
from reference_impl.strategies import data_parallel, fsdp, single_device
from reference_impl.truth import Adam, Momentum
from tests.saboteurs.planting import DATA, ONE, plant


class StartsFromInit(JaxForm):
    """A trainer that cannot load given values: truth starts from those that ``init`` made."""

    load = None  # type: ignore[assignment]


plant("healthy_without_load", StartsFromInit, data_parallel.PAGE, DATA)


class Scales(JaxForm):
    """A gradient that is a thousandth too long."""

    def loss_and_gradients(self, parameters: Any, batch: Any) -> Any:
        """Adam would never show it."""
        loss, gradients = super().loss_and_gradients(parameters, batch)
        return loss, jax.tree.map(lambda g: g * 1.001, gradients)


class WrongLoss(JaxForm):
    """Reports a loss that it does not train on."""

    def step(self, state: Any, batch: Any) -> Any:
        """A tenth of a percent too small."""
        state, metrics = super().step(state, batch)
        return state, {"loss": metrics["loss"] * 0.999}


class WrongForward(JaxForm):
    """Shows a loss that it does not train on, beside steps that are right."""

    @cached_property
    def loss(self) -> Any:
        """With a weight decay that the step does not know."""
        return self.compile(
            lambda state, batch: (
                self.loss_and_gradients(state.parameters, batch)[0]
                + 1e-4 * sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(state.parameters))
            )
        )


class LossOfTheNext(JaxForm):
    """Reports the loss of the state that it returns."""

    def step(self, state: Any, batch: Any) -> Any:
        """One forward pass too late."""
        state, _ = super().step(state, batch)
        return state, {"loss": self.loss_and_gradients(state.parameters, batch)[0]}


class SameKeys(Modified):
    """Every device draws its shard of a kernel with the same key."""

    def init(self, key: Any) -> Any:
        """The first eighth, eight times."""
        return kernels(super().init(key), lambda w: jnp.tile(w[:, : w.shape[1] // 8], (1, 8)) if w.shape[1] > 10 else w)


class FanInOfTheShard(Modified):
    """Scales by what a device sums, an eighth of what all do."""

    def init(self, key: Any) -> Any:
        """Too large by the square root of eight."""
        return kernels(super().init(key), lambda w: w * 8**0.5)


class OtherDigits(Modified):
    """Draws numbers next to those that one device draws."""

    def init(self, key: Any) -> Any:
        """Larger by one unit in the last place."""
        return kernels(super().init(key), lambda w: jnp.nextafter(w, jnp.inf))


class KeyOfEachShard(Modified):
    """Draws each device's shard with a key of its own, as shard_map makes it easy to: other numbers, and right ones."""

    def init(self, key: Any) -> Any:
        """By another key than that of one device."""
        return super().init(jax.random.fold_in(key, 1))


def kernels(parameters: Any, change: Callable[[Any], Any]) -> Any:
    """These parameters with every kernel changed."""
    return {name: layer | {"kernel": change(layer["kernel"])} for name, layer in parameters.items()}


class ForgetsMomentum(JaxForm):
    """The optimizer starts anew at every step: the first one looks right."""

    def update(self, state: TrainState, gradients: Any) -> TrainState:
        """Momentum zeroed."""
        return super().update(TrainState(state.parameters, self.transform.init(state.parameters)), gradients)


class StartsDifferently(JaxForm):
    """Two runs from the same values are not the same."""

    starts = 0

    def load(self, parameters: Any) -> Any:
        """The last bits of the start values depend on how often a run was started."""
        type(self).starts += 1
        state = super().load(parameters)
        return TrainState(jax.tree.map(lambda w: w * (1 + 1e-7 * self.starts), state.parameters), state.optimizer)


class NotANumber(JaxForm):
    """One value is not a number, where nothing looks at it."""

    def step(self, state: Any, batch: Any) -> Any:
        """NaN in the momentum of the last bias."""
        state, metrics = super().step(state, batch)
        return jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan) if leaf.shape == (10,) else leaf, state), metrics


class OtherDecay(NnxForm):
    """An NNX form that trains with another momentum than the plain JAX one."""

    def create_optimizer(self, model: Any) -> Any:
        """0.8 for 0.9."""
        return NnxForm(self.page, self.mesh_axes, Momentum(decay=0.8)).create_optimizer(model)


class ForgetsInBfloat16(NnxForm):
    """An NNX form without the momentum of the plain JAX one."""

    def create_optimizer(self, model: Any) -> Any:
        """Of bfloat16's gradients alone."""
        return NnxForm(self.page, self.mesh_axes, Momentum(decay=0.0)).create_optimizer(model)


class ShowsDecay(JaxForm):
    """Shows the gradients of a loss with weight decay, and trains by one without it."""

    @cached_property
    def gradients(self) -> Any:
        """Off by a ten-thousandth of the parameter."""
        return self.compile(
            lambda state, batch: jax.tree.map(
                lambda g, w: g + 1e-4 * w, self.loss_and_gradients(state.parameters, batch)[1], state.parameters
            )
        )


class ExchangesMoments(JaxForm):
    """Shows Adam's two moments under each other's name."""

    def optimizer_state(self, state: TrainState) -> Any:
        """As a conversion from another framework may have it."""
        shown = super().optimizer_state(state)
        return shown | {"mu": shown["nu"], "nu": shown["mu"]}


plant("gradient_scaled_on_one_device", Scales, single_device.PAGE, ONE, "NUM-1")
plant("decay_shown_on_one_device", ShowsDecay, single_device.PAGE, ONE, "NUM-1")
plant("decay_shown", ShowsDecay, data_parallel.PAGE, DATA, "NUM-2")
plant(
    "moments_exchanged", lambda page, axes, _: ExchangesMoments(page, axes, Adam()), data_parallel.PAGE, DATA, "NUM-3"
)
plant("wrong_loss", WrongLoss, data_parallel.PAGE, DATA, "NUM-4")
plant("forward_with_decay", WrongForward, data_parallel.PAGE, DATA, "NUM-4", "NUM-11")
plant("loss_of_the_next_state", LossOfTheNext, data_parallel.PAGE, DATA, "NUM-4", "NUM-11")
plant("same_key_on_every_shard", JaxForm, fsdp.PAGE, DATA, "NUM-12", network=SameKeys(MLP()))
plant("fan_in_of_the_shard", JaxForm, fsdp.PAGE, DATA, "NUM-12", network=FanInOfTheShard(MLP()))
plant("initial_digits_differ", JaxForm, fsdp.PAGE, DATA, "NUM-12", network=OtherDigits(MLP()))
plant("healthy_key_of_each_shard", JaxForm, fsdp.PAGE, DATA, network=KeyOfEachShard(MLP()))
plant("momentum_forgotten", ForgetsMomentum, data_parallel.PAGE, DATA, "NUM-3")
plant("runs_differ", StartsDifferently, single_device.PAGE, ONE, "NUM-5")
plant("not_a_number", NotANumber, data_parallel.PAGE, DATA, "NUM-10")
plant("frameworks_disagree", JaxForm, data_parallel.PAGE, DATA)
plant("frameworks_disagree", OtherDecay, data_parallel.PAGE, DATA, "NUM-8", "NUM-3", another_case=True)
plant("frameworks_disagree_in_bf16", JaxForm, data_parallel.PAGE, DATA, network=MIXED)
plant(
    *("frameworks_disagree_in_bf16", ForgetsInBfloat16, data_parallel.PAGE, DATA, "NUM-8", "MIX-1"),
    **{"network": MIXED, "another_case": True},
)
