"""Faults in what is computed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.strategies import (
    data_parallel,
    single_device,
)
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
plant("momentum_forgotten", ForgetsMomentum, data_parallel.PAGE, DATA, "NUM-3")
plant("runs_differ", StartsDifferently, single_device.PAGE, ONE, "NUM-5")
plant("not_a_number", NotANumber, data_parallel.PAGE, DATA, "NUM-10")
plant("frameworks_disagree", JaxForm, data_parallel.PAGE, DATA)
plant("frameworks_disagree", OtherDecay, data_parallel.PAGE, DATA, "NUM-8", "NUM-3", another_case=True)
