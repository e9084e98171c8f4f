"""The mixture of experts: forward, and the backward pass by hand, over numbers that know their float32 rounding.

    B  tokens: G groups of S                  h  a token in the model's width
    D  features, M the model's width          p  how much the router likes each expert
    E  experts, F the width of one            g  gates: p of the chosen, divided by their sum
    P  places of an expert in a group         z  an expert's hidden layer before its ReLU
    Q  places of all experts in it: E·P       y  what an expert makes of a token
    T  places of an expert in all: G·P        d…  the gradient of the loss by …
    C  classes

Input projection; plus what the experts add to it; head. A token chooses its k best experts, and its gates sum to one
over them. An expert gives its places to the tokens of a group in their order: who comes too late is dropped by it, and
weighs nothing there. Parameters are flat: ``input/kernel`` (D, M), ``input/bias`` (M,), ``router/kernel`` (M, E),
``experts/up`` (E, M, F), ``experts/down`` (E, F, M), ``head/kernel`` (M, C), ``head/bias`` (C,).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import erfc, sqrt
from typing import NamedTuple

import numpy as np

from meshproof.contract import Batch

from .data import draw_bell, examples, float32
from .judge import ModelTruth, check_array, check_labels
from .mlp import softmax_cross_entropy
from .optimizers import Momentum, Optimizer, Values
from .rounding import Array, Rounded, accumulation, exact, gate, relu, softmax

SEED = 0
"""With it no pre-activation comes so near 0, and no two experts so near in a token's favour, that float32 may flip."""


class Routing(NamedTuple):
    """``chosen`` (B, E) are the experts of each token, ``seats`` (G, S, Q) its places with them: ones and zeros.

    ``choices`` is their number k, ``chance`` that of float32 choosing otherwise for some token.
    """

    chosen: Array
    seats: Array
    choices: int
    chance: float


class Mixture(NamedTuple):
    """The forward pass through router and experts, as the backward pass needs it.

    ``p`` (B, E), the ``total`` of the chosen (B, 1), the gates ``g`` (B, E) and as ``weights`` of the places (G, S, Q);
    the experts' input ``x`` (E, T, M), ``z`` (E, T, F) and output ``y`` (G, Q, M); what is added to the tokens (B, M).
    """

    p: Rounded
    total: Rounded
    g: Rounded
    weights: Rounded
    x: Rounded
    z: Rounded
    y: Rounded
    added: Rounded


@dataclass(frozen=True)
class MoETruth(ModelTruth):
    """The truth of a mixture's numbers: its dims, the experts that a token chooses, and their places in a group."""

    features: int = 256
    width: int = 64
    experts: int = 8
    hidden: int = 128
    classes: int = 10
    choices: int = 2
    group: int = 8
    capacity: int = 2
    optimizer: Optimizer = field(default_factory=Momentum)
    seed: int = SEED

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""
        D, M, E, F, C = self.features, self.width, self.experts, self.hidden, self.classes
        experts = {"experts/up": (E, M, F), "experts/down": (E, F, M)}
        return {
            "input/kernel": (D, M),
            "input/bias": (M,),
            "router/kernel": (M, E),
            **experts,
            "head/kernel": (M, C),
            "head/bias": (C,),
        }

    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """Kernels of variance 1/fan-in, of an expert's first layer 2/fan-in (it has the ReLU); biases of 0.05."""
        gain = 2 if path == "experts/up" else 1
        deviation = 0.05 if path.endswith("bias") else sqrt(gain / shape[-2])
        return np.asarray(deviation * draw_bell(path, self.seed, shape))

    def batches(self, count: int, batch: int) -> tuple[Batch, ...]:
        """``count`` different batches of ``batch`` tokens: ``x`` (B, D) float32 and its class ``y`` (B,) int32."""
        made = (examples(step, batch, self.classes, (self.features,), self.seed) for step in range(count))
        return tuple({"x": float32(x_BxD), "y": class_B} for x_BxD, class_B in made)

    def check_batch(self, batch: Batch, number: int) -> None:
        """Raises ``ValueError`` naming both numbers where a field is not what the model takes, or no whole groups."""
        for name in ("x", "y"):
            if name not in batch:
                raise ValueError(f"batch {number} has the fields {sorted(batch)} and no {name!r}")
        x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
        tokens = x.shape[0] if x.ndim else 0
        check_array(f"batch {number} x", x, (tokens, self.features))
        if not tokens or tokens % self.group:
            raise ValueError(f"batch {number}: {tokens} tokens are not divisible by groups of {self.group}")
        check_labels(f"batch {number} y", y, (tokens,), self.classes)

    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, dict[str, Rounded]]:
        """The scalar mean cross-entropy and the gradient of every parameter."""
        x_BxD = exact(batch["x"])
        h_BxM = x_BxD @ parameters["input/kernel"] + parameters["input/bias"]
        p_BxE = softmax(h_BxM @ parameters["router/kernel"])
        routing = route(p_BxE, self.choices, self.group, self.capacity)
        mixture = forward(parameters, h_BxM, p_BxE, routing)
        r_BxM = h_BxM + mixture.added
        z_BxC = r_BxM @ parameters["head/kernel"] + parameters["head/bias"]
        value, dz_BxC = softmax_cross_entropy(z_BxC, np.asarray(batch["y"]))
        dr_BxM = dz_BxC @ parameters["head/kernel"].T
        dx_BxM, dscores_BxE, of_experts = backward(parameters, mixture, routing, dr_BxM, lean)
        dh_BxM = dr_BxM + dx_BxM + dscores_BxE @ parameters["router/kernel"].T
        gradients = {
            "input/kernel": x_BxD.T @ dh_BxM,
            "input/bias": dh_BxM.sum(axis=0),
            "router/kernel": h_BxM.T @ dscores_BxE,
            **of_experts,
            "head/kernel": r_BxM.T @ dz_BxC,
            "head/bias": dz_BxC.sum(axis=0),
        }
        return doubtful(value, routing), {path: doubtful(gradients[path], routing) for path in parameters}


def route(p_BxE: Rounded, choices: int, group: int, capacity: int) -> Routing:
    """The best experts of each token, and their places in the order of the tokens of each group."""
    best_BxE = np.argsort(-p_BxE.value, axis=-1, kind="stable")
    chosen_BxE = np.zeros_like(p_BxE.value)
    np.put_along_axis(chosen_BxE, best_BxE[:, :choices], 1, axis=-1)
    chosen_GxSxE = chosen_BxE.reshape(-1, group, chosen_BxE.shape[-1])
    before_GxSxE = np.cumsum(chosen_GxSxE, axis=1) - chosen_GxSxE
    seats_GxSxExP = chosen_GxSxE[..., None] * (before_GxSxE[..., None] == np.arange(capacity))
    seats_GxSxQ = seats_GxSxExP.reshape(*seats_GxSxExP.shape[:2], -1)
    chance = chance_of_flip(p_BxE, best_BxE[:, choices - 1 : choices + 1])
    return Routing(chosen_BxE, seats_GxSxQ, choices, chance)


def chance_of_flip(p_BxE: Rounded, last_and_next_Bx2: np.ndarray) -> float:
    """The chance that errors of p swap the last expert that some token chose and the next best, if there is one.

    It is that of a normally distributed error of their difference, summed over the tokens, and at most 1.
    """
    if last_and_next_Bx2.shape[-1] < 2:
        return 0.0
    pair_Bx2 = moved(p_BxE, lambda a: np.take_along_axis(a, last_and_next_Bx2, axis=-1))
    gap_B, deviation_B = -np.diff(pair_Bx2.value)[:, 0], np.sqrt(pair_Bx2.variance.sum(-1))
    return min(1.0, sum(erfc(gap / deviation / sqrt(2)) / 2 for gap, deviation in zip(gap_B, deviation_B, strict=True)))


def doubtful(x: Rounded, routing: Routing) -> Rounded:
    """One token with another expert, and others with other places, may move an array by as much as itself."""
    return Rounded(x.value, x.variance + routing.chance * np.mean(x.value**2))


def forward(parameters: Values, h_BxM: Rounded, p_BxE: Rounded, routing: Routing) -> Mixture:
    """What the experts make of the tokens, weighted by the gates."""
    chosen_BxE, seats_GxSxQ = routing.chosen, routing.seats
    (G, S, Q), E = seats_GxSxQ.shape, chosen_BxE.shape[-1]
    kept_BxE = p_BxE * exact(chosen_BxE)
    total_Bx1 = moved(kept_BxE.sum(axis=-1), lambda a: a[:, None])
    g_BxE = kept_BxE / total_Bx1
    weights_GxSxQ = moved(g_BxE, lambda a: seats_GxSxQ * a.reshape(G, S, E).repeat(Q // E, axis=-1))
    h_GxSxM = moved(h_BxM, lambda a: a.reshape(G, S, -1))
    x_ExTxM = to_experts(sparse(swapped(exact(seats_GxSxQ)), h_GxSxM, 1), E)
    z_ExTxF = x_ExTxM @ parameters["experts/up"]
    y_GxQxM = to_groups(relu(z_ExTxF) @ parameters["experts/down"], G)
    added_GxSxM = sparse(weights_GxSxQ, y_GxQxM, routing.choices)
    added_BxM = moved(added_GxSxM, lambda a: a.reshape(h_BxM.value.shape))
    return Mixture(p_BxE, total_Bx1, g_BxE, weights_GxSxQ, x_ExTxM, z_ExTxF, y_GxQxM, added_BxM)


def backward(
    parameters: Values, mixture: Mixture, routing: Routing, dout_BxM: Rounded, lean: float
) -> tuple[Rounded, Rounded, dict[str, Rounded]]:
    """The gradient by the tokens that the experts saw (B, M), by the router's scores (B, E), and by the kernels."""
    seats_GxSxQ = routing.seats
    (G, S, _), (B, E) = seats_GxSxQ.shape, routing.chosen.shape
    dout_GxSxM = moved(dout_BxM, lambda a: a.reshape(G, S, -1))
    dweights_GxSxQ = moved(dout_GxSxM @ swapped(mixture.y), lambda a: seats_GxSxQ * a)
    dy_ExTxM = to_experts(sparse(swapped(mixture.weights), dout_GxSxM, 1), E)
    dz_ExTxF = gate(dy_ExTxM @ swapped(parameters["experts/down"]), mixture.z, lean)
    of_experts = {
        "experts/up": swapped(mixture.x) @ dz_ExTxF,
        "experts/down": swapped(relu(mixture.z)) @ dy_ExTxM,
    }
    dx_GxQxM = to_groups(dz_ExTxF @ swapped(parameters["experts/up"]), G)
    dh_GxSxM = sparse(exact(seats_GxSxQ), dx_GxQxM, routing.choices)
    dg_BxE = moved(dweights_GxSxQ, lambda a: a.reshape(B, E, -1).sum(-1))
    dscores_BxE = through_gates(dg_BxE, mixture, routing)
    return moved(dh_GxSxM, lambda a: a.reshape(dout_BxM.value.shape)), dscores_BxE, of_experts


def through_gates(dg_BxE: Rounded, mixture: Mixture, routing: Routing) -> Rounded:
    """Through the gates' division by their sum, ``dp = (dg − Σ g·dg) / Σ p`` of the chosen, and through the softmax.

    A dropped choice has no gradient of its own, and still its share of the sum.
    """
    mean_Bx1 = moved((mixture.g * dg_BxE).sum(axis=-1), lambda a: a[:, None])
    dp_BxE = (dg_BxE - mean_Bx1) / mixture.total * exact(routing.chosen)
    centre_Bx1 = moved((mixture.p * dp_BxE).sum(axis=-1), lambda a: a[:, None])
    return mixture.p * (dp_BxE - centre_Bx1)


def sparse(left: Rounded, right: Rounded, terms: int) -> Rounded:
    """The matrix product where a sum has at most so many terms that are not zero: adding a zero rounds nothing."""
    dense, squares = left @ right, left.value**2 @ right.value**2
    n = left.value.shape[-1]
    saved = accumulation(dense.value, squares, n) - accumulation(dense.value, squares, terms)
    return Rounded(dense.value, dense.variance - saved)


def to_experts(x_GxQxM: Rounded, experts: int) -> Rounded:
    """(G, E·P, M) as (E, G·P, M): the places of each expert in all groups."""
    G, Q, M = x_GxQxM.value.shape
    by_expert = (G, experts, Q // experts, M)
    return moved(x_GxQxM, lambda a: a.reshape(by_expert).swapaxes(0, 1).reshape(experts, -1, M))


def to_groups(y_ExTxM: Rounded, groups: int) -> Rounded:
    """(E, G·P, M) as (G, E·P, M), the inverse of `to_experts`."""
    return to_experts(y_ExTxM, groups)


def swapped(x: Rounded) -> Rounded:
    """Each matrix transposed."""
    return moved(x, lambda a: a.swapaxes(-1, -2))


def moved(x: Rounded, move: Callable[[Array], Array]) -> Rounded:
    """Values moved to other places, picked out or zeroed, which rounds nothing: what happens to their variances too."""
    return Rounded(move(x.value), move(x.variance))
