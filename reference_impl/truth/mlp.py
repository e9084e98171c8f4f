"""The MLP: forward, and the backward pass by hand, over numbers that know their float32 rounding.

    B  examples in the batch        z  before the nonlinearity
    D  features into a layer        h  after it, the input of the next layer
    F  features out of a layer      w, b  kernel and bias
    C  outputs of the last layer    d…  the gradient of the loss by …

Dense layers with ReLU between them; the last is linear. Parameters are flat: ``dense_0/kernel`` (D, F),
``dense_0/bias`` (F,), ``dense_1/kernel`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from .rounding import Rounded, exact, gate, log_softmax, relu, softmax

Loss = Literal["softmax_cross_entropy", "mean_squared_error"]
Parameters = Mapping[str, Rounded]


def loss_and_gradients(
    parameters: Parameters, batch: Mapping[str, Any], loss: Loss, lean: float = 0
) -> tuple[Rounded, dict[str, Rounded]]:
    """The scalar mean loss and the gradient of every parameter, in the parameters' order.

    ``batch["x"]`` is (B, D) float32; ``batch["y"]`` is (B,) integer labels for ``softmax_cross_entropy``, which is
    averaged over B, and (B, C) float32 targets for ``mean_squared_error``, which is averaged over B·C. ``lean`` is that
    of `rounding.gate`.
    """
    h, z = forward(parameters, exact(batch["x"]))
    value, dz_BxC = LOSSES[loss](z[-1], np.asarray(batch["y"]))
    gradients = backward(parameters, h, z, dz_BxC, lean)
    return value, {path: gradients[path] for path in parameters}


def forward(parameters: Parameters, x_BxD: Rounded) -> tuple[list[Rounded], list[Rounded]]:
    """The input h of every layer and its output z before the nonlinearity."""
    h, z = [x_BxD], []
    for layer in range(depth(parameters)):
        w_DxF, b_F = parameters[f"dense_{layer}/kernel"], parameters[f"dense_{layer}/bias"]
        z_BxF = h[layer] @ w_DxF + b_F
        z.append(z_BxF)
        h.append(relu(z_BxF))
    return h, z


def backward(
    parameters: Parameters, h: list[Rounded], z: list[Rounded], dz_BxC: Rounded, lean: float
) -> dict[str, Rounded]:
    """The gradient of every parameter, from the last layer to the first."""
    gradients, dz_BxF = {}, dz_BxC
    for layer in reversed(range(depth(parameters))):
        h_BxD, w_DxF = h[layer], parameters[f"dense_{layer}/kernel"]
        gradients[f"dense_{layer}/kernel"] = h_BxD.T @ dz_BxF
        gradients[f"dense_{layer}/bias"] = dz_BxF.sum(axis=0)
        if layer:
            dh_BxD = dz_BxF @ w_DxF.T
            dz_BxF = gate(dh_BxD, z[layer - 1], lean)
    return gradients


def softmax_cross_entropy(z_BxC: Rounded, y_B: np.ndarray) -> tuple[Rounded, Rounded]:
    """``−mean_B log softmax(z)[y]`` and its gradient by z, ``(softmax(z) − onehot(y)) / B``."""
    B, C = z_BxC.value.shape
    logp_BxC, onehot_BxC = log_softmax(z_BxC), exact(np.eye(C)[y_B])
    logp_B = Rounded(logp_BxC.value[np.arange(B), y_B], logp_BxC.variance[np.arange(B), y_B])
    return -logp_B.sum() * (1 / B), (softmax(z_BxC) - onehot_BxC) * (1 / B)


def mean_squared_error(z_BxC: Rounded, y_BxC: np.ndarray) -> tuple[Rounded, Rounded]:
    """``mean_BxC (z − y)²`` and its gradient by z, ``2·(z − y) / (B·C)``."""
    error_BxC = z_BxC - exact(y_BxC)
    return error_BxC.square().sum() * (1 / y_BxC.size), error_BxC * (2 / y_BxC.size)


LOSSES: dict[Loss, Callable[[Rounded, np.ndarray], tuple[Rounded, Rounded]]] = {
    "softmax_cross_entropy": softmax_cross_entropy,
    "mean_squared_error": mean_squared_error,
}


def depth(parameters: Parameters) -> int:
    """The number of dense layers."""
    return len(parameters) // 2
