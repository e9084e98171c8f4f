"""The CNN with a batch normalisation behind each convolution, and its running statistics.

Over its N = B·H·W pixels a channel has a mean μ and a variance σ², the biased one. With ``x̂ = (x − μ)/√(σ² + ε)`` the
maximum and ReLU see ``scale·x̂ + bias``, and a running statistic becomes ``m·old + (1 − m)·new``. The convolution has no
bias: the norm would take it out again.

An error of a channel's statistics moves all its pixels one way, and so does one of the means in the backward pass. As
the flip of a ReLU it is no independent error of each pixel: ``lean`` moves it by its deviation (see `training`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meshproof.contract import Batch, Evaluation, Tree, leaves

from .cnn import CNNTruth, convolve, dense, flat, kernel_gradient, pixels, pooled, pooled_backward, reshaped, turned
from .mlp import softmax_cross_entropy
from .operations import mean, projected_variance
from .optimizers import Values
from .rounding import ELEMENTARY, Array, Rounded, exact

SEED = 2
"""With it neither a ReLU nor a maximum of the default shape may flip in three steps; see `mlp.SEED`."""

MOMENTUM, EPSILON = 0.9, 1e-5
"""What a running statistic keeps of itself in a step, and what is added to a variance."""


@dataclass(frozen=True)
class BatchNormCNNTruth(CNNTruth):
    """The truth of a CNN's numbers, and of the running statistics that ``momentum`` averages."""

    seed: int = SEED
    momentum: float = MOMENTUM
    epsilon: float = EPSILON

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""
        shapes: dict[str, tuple[int, ...]] = {}
        for path, shape in super().parameter_shapes().items():
            layer, name = path.split("/")
            if layer != "dense" and name == "bias":
                norm = layer.replace("conv", "norm")
                shapes |= {f"{norm}/scale": shape, f"{norm}/bias": shape}
            else:
                shapes[path] = shape
        return shapes

    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """Scales around 1, the others as in every CNN."""
        return super().draw(path, shape) + path.endswith("scale")

    def initial_auxiliary(self) -> dict[str, Rounded]:
        """Mean 0 and variance 1 of every channel."""
        return {
            f"norm_{i}/{name}": exact(np.full(size, float(name == "var")))
            for i, size in enumerate(self.channels[1:])
            for name in ("mean", "var")
        }

    def follow(self, auxiliary: Values, parameters: Values, batch: Mapping[str, np.ndarray], lean: float) -> Values:
        """The running statistics after a step from ``parameters`` on a batch."""
        followed = {}
        for i, layer in enumerate(self.layers(parameters, exact(batch["x"]), lean)):
            for name, new_F in (("mean", layer.norm.mean), ("var", layer.norm.variance)):
                path = f"norm_{i}/{name}"
                followed[path] = auxiliary[path] * self.momentum + new_F * (1 - self.momentum)
        return followed

    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, dict[str, Rounded]]:
        """The scalar cross-entropy, averaged over B, and the gradient of every parameter."""
        layers = self.layers(parameters, exact(batch["x"]), lean)
        features_BxHxWxC = pooled(layers[-1].z)
        value, dlogits_BxC = softmax_cross_entropy(dense(parameters, features_BxHxWxC), np.asarray(batch["y"]))
        dfeatures_BxD = dlogits_BxC @ parameters["dense/kernel"].T
        gradients = backward(parameters, layers, reshaped(dfeatures_BxD, features_BxHxWxC.value.shape), lean)
        gradients |= {"dense/kernel": flat(features_BxHxWxC).T @ dlogits_BxC, "dense/bias": dlogits_BxC.sum(axis=0)}
        return value, {path: gradients[path] for path in parameters}

    def evaluate(self, parameters: Tree, batches: Sequence[Batch], auxiliary: Tree | None = None) -> Evaluation:
        """The totals by running statistics, those before the first step where none are given."""
        values = {path: exact(value) for path, value in self.checked_parameters(parameters).items()}
        running = self.initial_auxiliary() if auxiliary is None else {p: exact(x) for p, x in leaves(auxiliary)}

        def outputs(batch: Batch) -> tuple[Rounded, Rounded]:
            logits_BxC = self.evaluated(values, running, exact(batch["x"]))
            return softmax_cross_entropy(logits_BxC, np.asarray(batch["y"]))[0], logits_BxC

        return self.counted(batches, outputs)

    def evaluated(self, parameters: Values, running: Values, h_BxHxWxC: Rounded) -> Rounded:
        """The outputs (B, classes) by running statistics."""
        for i in range(len(self.channels) - 1):
            x_BxHxWxF = convolve(h_BxHxWxC, parameters[f"conv_{i}/kernel"])
            deviation_F = (running[f"norm_{i}/var"] + self.epsilon).sqrt()
            xhat_NxF = (pixels(x_BxHxWxF) - running[f"norm_{i}/mean"]) / deviation_F
            z_NxF = xhat_NxF * parameters[f"norm_{i}/scale"] + parameters[f"norm_{i}/bias"]
            h_BxHxWxC = pooled(reshaped(z_NxF, x_BxHxWxF.value.shape))
        return dense(parameters, h_BxHxWxC)

    def layers(self, parameters: Values, h_BxHxWxC: Rounded, lean: float) -> list[Layer]:
        """What each layer computes of images."""
        made: list[Layer] = []
        for i in range(len(self.channels) - 1):
            x_BxHxWxF = convolve(h_BxHxWxC, parameters[f"conv_{i}/kernel"])
            norm = normalise(pixels(x_BxHxWxF), self.epsilon, lean)
            z_NxF = norm.xhat * parameters[f"norm_{i}/scale"] + parameters[f"norm_{i}/bias"]
            made.append(Layer(h_BxHxWxC, norm, reshaped(z_NxF, x_BxHxWxF.value.shape)))
            h_BxHxWxC = pooled(made[-1].z)
        return made


class Norm(NamedTuple):
    """Normalised pixels (N, F), 1/√(σ² + ε) of each channel (F,), and its mean and variance (F,)."""

    xhat: Rounded
    inverse: Rounded
    mean: Rounded
    variance: Rounded


class Layer(NamedTuple):
    """The input h of a convolution, the normalisation of its output, and what the maximum and ReLU see, z."""

    h: Rounded
    norm: Norm
    z: Rounded


def backward(parameters: Values, layers: list[Layer], dh_BxHxWxF: Rounded, lean: float) -> dict[str, Rounded]:
    """The gradient of every convolution's and norm's parameters, of what arrives from the dense layer."""
    gradients = {}
    for i, layer in reversed(list(enumerate(layers))):
        dz_NxF = pixels(pooled_backward(dh_BxHxWxF, layer.z, lean))
        gradients[f"norm_{i}/scale"] = (dz_NxF * layer.norm.xhat).sum(axis=0)
        gradients[f"norm_{i}/bias"] = dz_NxF.sum(axis=0)
        dx_NxF = normalise_backward(dz_NxF * parameters[f"norm_{i}/scale"], layer.norm, lean)
        dx_BxHxWxF = reshaped(dx_NxF, layer.z.value.shape)
        gradients[f"conv_{i}/kernel"] = kernel_gradient(layer.h, dx_BxHxWxF)
        if i:
            dh_BxHxWxF = convolve(dx_BxHxWxF, turned(parameters[f"conv_{i}/kernel"]))
    return gradients


def normalise(x_NxF: Rounded, epsilon: float, lean: float) -> Norm:
    """Each channel over its pixels, with ``σ² = mean x² − μ²``: of all ways to a variance the one that errs most.

    The variance of x goes through the Jacobian of `operations.normalise`.
    """
    x_FxN, v_FxN, N = exact(x_NxF.value.T), x_NxF.variance.T, len(x_NxF.value)
    mean_Fx1 = mean(x_FxN)
    variance_Fx1 = leaned(mean(x_FxN.square()) - mean_Fx1.square(), lean)
    mean_Fx1 = leaned(mean_Fx1, lean)
    inverse_Fx1 = exact(1) / (variance_Fx1 + epsilon).sqrt()
    inverse_Fx1 = inherits(inverse_Fx1, ELEMENTARY * inverse_Fx1.value**2)
    own_FxN = (x_FxN - mean_Fx1) * inverse_Fx1
    squares_Fx1 = (own_FxN.value**2 * v_FxN).sum(-1, keepdims=True) / N**2
    inverse_F, mean_F, variance_F = (
        Rounded(of.value[:, 0], (of.variance + inherited)[:, 0])
        for of, inherited in (
            (inverse_Fx1, inverse_Fx1.value**4 * squares_Fx1),
            (mean_Fx1, v_FxN.sum(-1, keepdims=True) / N**2),
            (variance_Fx1, 4 * squares_Fx1 / inverse_Fx1.value**2),
        )
    )
    xhat_FxN = inherits(own_FxN, inverse_Fx1.value**2 * projected_variance(v_FxN, own_FxN.value))
    return Norm(xhat_FxN.T, inverse_F, mean_F, variance_F)


def normalise_backward(g_NxF: Rounded, norm: Norm, lean: float) -> Rounded:
    """The gradient by x, from that by x̂, as `operations.normalise_backward`."""
    g_FxN, xhat_FxN = exact(g_NxF.value.T), norm.xhat.T
    along_one, along_xhat = (leaned(mean(part), lean) for part in (g_FxN, g_FxN * xhat_FxN))
    own_NxF = (g_FxN - along_one - xhat_FxN * along_xhat).T * norm.inverse
    inherited_FxN = projected_variance(g_NxF.variance.T, xhat_FxN.value)
    return inherits(own_NxF, norm.inverse.value**2 * inherited_FxN.T)


def leaned(x: Rounded, lean: float) -> Rounded:
    """Moved by so many of its deviations."""
    return Rounded(x.value + lean * np.sqrt(x.variance), x.variance)


def inherits(x: Rounded, variance: Array) -> Rounded:
    """With the variance that operands bring, beside its own."""
    return Rounded(x.value, x.variance + variance)
