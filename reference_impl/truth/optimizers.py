"""Optimizers by their formulas, over numbers that know their float32 rounding.

Each is a frozen dataclass of its hyper-parameters, which the implementation under test reads too. State is flat and
canonical: ``momentum/<path>``, or ``mu/<path>``, ``nu/<path>`` and ``count``. What begins with an underscore is the
truth's own bookkeeping and no part of the canonical state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from .rounding import Array, Rounded, constant, exact, rounding

Values = Mapping[str, Rounded]


class Optimizer(Protocol):
    """What the truth needs of an optimizer."""

    def init(self, parameters: Values) -> dict[str, Rounded]:
        """The state before the first step."""
        ...

    def update(
        self, parameters: Values, state: Values, gradients: Values
    ) -> tuple[dict[str, Rounded], dict[str, Rounded]]:
        """The parameters and the state after one step."""
        ...

    def perturbed(self, draw: int) -> Optimizer:
        """The same with an error of one deviation in what all elements share: its sign is that of the draw."""
        ...


@dataclass(frozen=True)
class Momentum:
    """SGD with momentum as ``optax.sgd(learning_rate, momentum=decay)`` has it: m = d·m + g, p = p − lr·m."""

    learning_rate: float = 0.02
    decay: float = 0.9

    def init(self, parameters: Values) -> dict[str, Rounded]:
        """Zero momentum."""
        return zeros("momentum", parameters)

    def update(
        self, parameters: Values, state: Values, gradients: Values
    ) -> tuple[dict[str, Rounded], dict[str, Rounded]]:
        """One step; the momentum is updated before it is used."""
        momentum = {path: state[f"momentum/{path}"] * self.decay + g for path, g in gradients.items()}
        return descend(parameters, momentum, self.learning_rate), named("momentum", momentum)

    def perturbed(self, draw: int) -> Optimizer:
        """The same: all its errors are elementwise."""
        return self


@dataclass(frozen=True)
class AveragedMomentum:
    """SGD with momentum as an average of gradients: m = d·m + (1 − d)·g, p = p − lr·m (``optax.ema``, no debias)."""

    learning_rate: float = 0.2
    decay: float = 0.9

    def init(self, parameters: Values) -> dict[str, Rounded]:
        """Zero momentum."""
        return zeros("momentum", parameters)

    def update(
        self, parameters: Values, state: Values, gradients: Values
    ) -> tuple[dict[str, Rounded], dict[str, Rounded]]:
        """One step; the momentum is updated before it is used."""
        momentum = {
            path: state[f"momentum/{path}"] * self.decay + g * (1 - self.decay) for path, g in gradients.items()
        }
        return descend(parameters, momentum, self.learning_rate), named("momentum", momentum)

    def perturbed(self, draw: int) -> Optimizer:
        """The same: all its errors are elementwise."""
        return self


@dataclass(frozen=True)
class Adam:
    """Adam as ``optax.adam`` has it: m̂ / (√v̂ + ε), m̂ = m / (1 − b1ᵗ), v̂ = v / (1 − b2ᵗ) (Kingma and Ba 2015)."""

    learning_rate: float = 3e-4
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    def init(self, parameters: Values) -> dict[str, Rounded]:
        """Zero moments and a zero count."""
        moments = {**zeros("mu", parameters), **zeros("nu", parameters), **zeros("_covariance", parameters)}
        return {"count": exact(0), **moments}

    def update(
        self, parameters: Values, state: Values, gradients: Values
    ) -> tuple[dict[str, Rounded], dict[str, Rounded]]:
        """One step; the count is one at the first."""
        count = int(state["count"].value) + 1
        mu = {path: state[f"mu/{path}"] * self.b1 + g * (1 - self.b1) for path, g in gradients.items()}
        nu = {path: state[f"nu/{path}"] * self.b2 + g.square() * (1 - self.b2) for path, g in gradients.items()}
        covariance = {
            path: exact(
                self.b1 * self.b2 * state[f"_covariance/{path}"].value
                + (1 - self.b1) * (1 - self.b2) * 2 * g.value * g.variance
            )
            for path, g in gradients.items()
        }
        direction = {path: self.direction(mu[path], nu[path], covariance[path].value, count) for path in gradients}
        moments = {**named("mu", mu), **named("nu", nu), **named("_covariance", covariance)}
        return descend(parameters, direction, self.learning_rate), {"count": exact(count), **moments}

    def direction(self, mu: Rounded, nu: Rounded, covariance: Array, count: int) -> Rounded:
        """m̂ / (√v̂ + ε), of which both m and v hold the errors of the same gradients.

        Independent errors would give the quotient the variance r². First order with Cov(m, v) is far smaller: at the
        first step m̂ / √v̂ is the gradient's sign, whatever its error. That holds while the error is small against the
        denominator; r⁴ stands for what first order leaves out. As |m̂| ≤ c·√v̂ (`largest_direction`), no error exceeds
        2c, however small the gradient.
        """
        first, second = self.bias_correction(self.b1, count), self.bias_correction(self.b2, count)
        m_hat, root = mu / first, (nu / second).sqrt()
        quotient = m_hat / (root + self.eps)
        covariance_of_root = covariance / (first * second) / np.where(root.value > 0, 2 * root.value, 1)
        shared = 2 * m_hat.value * covariance_of_root / (root.value + self.eps) ** 3
        first_order = np.maximum(quotient.variance - shared, rounding(quotient.value))
        variance = np.minimum(first_order + quotient.variance**2, quotient.variance)
        return Rounded(quotient.value, np.minimum(variance, (2 * self.largest_direction(count)) ** 2))

    def bias_correction(self, decay: float, count: int) -> float:
        """1 − dᵗ."""
        return 1 - decay**count

    def perturbed(self, draw: int) -> Optimizer:
        """With the bias corrections as far off as float32 takes them."""
        return PerturbedAdam(self.learning_rate, self.b1, self.b2, self.eps, draw)

    def largest_direction(self, count: int) -> float:
        """The largest |m̂| / √v̂ after ``count`` steps, whatever the gradients.

        m̂ = Σ aₛgₛ and v̂ = Σ cₛgₛ² with weights that sum to one, so |m̂| ≤ √(Σ aₛ²/cₛ) · √v̂ by Cauchy and Schwarz.
        """
        age = np.arange(count)
        a, c = self.b1**age, self.b2**age
        return sqrt(float(((a / a.sum()) ** 2 / (c / c.sum())).sum()))


@dataclass(frozen=True)
class PerturbedAdam(Adam):
    """Adam whose dᵗ is off by one deviation: of the constant that float32 cannot hold, and of one rounding.

    1 − dᵗ cancels: float32 holds 0.999 with an error of 1.3e-8, and so the first 1 − dᵗ, which is 0.001, with a
    relative one of 1.3e-5. That error is one number for all elements: its effects on them add, and not in quadrature.
    The error has one sign at every step (draw 0), or alternates (draw 1).
    """

    draw: int = 0

    def bias_correction(self, decay: float, count: int) -> float:
        """1 − (dᵗ ± e)."""
        of_constant = constant(decay).variance * (count * decay ** (count - 1)) ** 2
        error = sqrt(float(of_constant + rounding(np.asarray(decay**count))))
        return 1 - decay**count - (-error if self.draw * (count - 1) % 2 else error)


def descend(parameters: Values, direction: Values, learning_rate: float) -> dict[str, Rounded]:
    """p − lr·direction, leaf by leaf."""
    return {path: p - direction[path] * learning_rate for path, p in parameters.items()}


def zeros(name: str, parameters: Values) -> dict[str, Rounded]:
    """A state tree of exact zeros in the parameters' shapes."""
    return {f"{name}/{path}": exact(np.zeros_like(p.value)) for path, p in parameters.items()}


def named(name: str, leaves: Values) -> dict[str, Rounded]:
    """The leaves with the state tree's name before their paths."""
    return {f"{name}/{path}": leaf for path, leaf in leaves.items()}
