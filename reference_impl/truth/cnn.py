"""The CNN: forward, and the backward pass by hand, over numbers that know their float32 rounding.

    B  images in the batch           z  before the nonlinearity
    H, W  rows and columns           m  the largest z of a 2×2 window
    C  channels into a layer         h  after the nonlinearity, the input of the next layer
    F  channels out of a layer       w, b  kernel and bias; d…  the gradient of the loss by …

Each layer convolves by 3×3 with zeros around the image (SAME), takes ReLU, and the maximum of each 2×2 window; a dense
layer makes logits of what remains. Parameters are flat: ``conv_0/kernel`` (3, 3, C, F), ``conv_0/bias`` (F,), …,
``dense/kernel``, ``dense/bias``.

A convolution is one matrix product of every pixel's neighbourhood with the kernel. Maximum and ReLU select and do not
round, so they commute, and the truth takes the maximum first: windows without a positive value then tie at 0 nowhere.
Where two values of a window are so near that their errors may swap them, the whole arriving gradient goes to one or the
other: like a ReLU that may flip (`rounding.gate`), that is a second moment of chance times gradient squared on either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from meshproof.contract import Batch

from .data import draw_bell, examples, float32
from .judge import ModelTruth, check_array, check_labels
from .mlp import softmax_cross_entropy
from .optimizers import Momentum, Optimizer, Values
from .rounding import Array, Rounded, contest, exact, gate, relu

SEED = 0
"""With it neither a ReLU nor a maximum of the default shape may flip in three steps; see `mlp.SEED`."""


@dataclass(frozen=True)
class CNNTruth(ModelTruth):
    """The truth of a CNN's numbers: square images of ``size``, channels from the image's on, classes, an optimizer."""

    size: int = 8
    channels: tuple[int, ...] = (3, 8, 16)
    classes: int = 10
    optimizer: Optimizer = field(default_factory=Momentum)
    seed: int = SEED

    def __post_init__(self) -> None:
        halvings = 2 ** (len(self.channels) - 1)
        if self.size < 1 or self.size % halvings:
            raise ValueError(f"images of {self.size}×{self.size} cannot be halved to a multiple of {halvings}")

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""
        shapes: dict[str, tuple[int, ...]] = {}
        convolutions = len(self.channels) - 1
        for i in range(convolutions):
            C, F = self.channels[i : i + 2]
            shapes[f"conv_{i}/kernel"], shapes[f"conv_{i}/bias"] = (3, 3, C, F), (F,)
        features = (self.size // 2**convolutions) ** 2 * self.channels[-1]
        return shapes | {"dense/kernel": (features, self.classes), "dense/bias": (self.classes,)}

    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """Kernels of variance 2/fan-in (He et al. 2015), biases of deviation 0.05."""
        deviation = np.sqrt(2 / prod(shape[:-1])) if path.endswith("kernel") else 0.05
        return np.asarray(deviation * draw_bell(path, self.seed, shape))

    def batches(self, count: int, batch: int) -> tuple[Batch, ...]:
        """``count`` different batches of ``batch`` images: ``x`` (B, H, W, C) float32, ``y`` (B,) int32 classes."""
        image = (self.size, self.size, self.channels[0])
        made = (examples(step, batch, self.classes, image, self.seed) for step in range(count))
        return tuple({"x": float32(x_BxHxWxC), "y": class_B} for x_BxHxWxC, class_B in made)

    def check_batch(self, batch: Batch, number: int) -> None:
        """Raises ``ValueError`` naming both shapes where a field is not what the model and the loss take."""
        for name in ("x", "y"):
            if name not in batch:
                raise ValueError(f"batch {number} has the fields {sorted(batch)} and no {name!r}")
        x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
        if not x.size:
            raise ValueError(f"batch {number} is empty: x has shape {x.shape}")
        check_array(f"batch {number} x", x, (x.shape[0], self.size, self.size, self.channels[0]))
        check_labels(f"batch {number} y", y, x.shape[:1], self.classes)

    def logits(self, parameters: Values, x_BxHxWxC: np.ndarray) -> Rounded:
        """The outputs (B, classes)."""
        return dense(parameters, forward(parameters, exact(x_BxHxWxC))[0][-1])

    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, dict[str, Rounded]]:
        """The scalar cross-entropy, averaged over B, and the gradient of every parameter."""
        h, z = forward(parameters, exact(batch["x"]))
        value, dlogits_BxC = softmax_cross_entropy(dense(parameters, h[-1]), np.asarray(batch["y"]))
        dfeatures_BxD = dlogits_BxC @ parameters["dense/kernel"].T
        gradients = backward(parameters, h, z, reshaped(dfeatures_BxD, h[-1].value.shape), lean)
        gradients |= {"dense/kernel": flat(h[-1]).T @ dlogits_BxC, "dense/bias": dlogits_BxC.sum(axis=0)}
        return value, {path: gradients[path] for path in parameters}


def forward(parameters: Values, x_BxHxWxC: Rounded) -> tuple[list[Rounded], list[Rounded]]:
    """The input h of every convolution and of the dense layer, and the output z of every convolution."""
    h, z = [x_BxHxWxC], []
    for layer in range(convolutions(parameters)):
        w_3x3xCxF, b_F = parameters[f"conv_{layer}/kernel"], parameters[f"conv_{layer}/bias"]
        z_BxHxWxF = convolve(h[layer], w_3x3xCxF) + b_F
        z.append(z_BxHxWxF)
        h.append(pooled(z_BxHxWxF))
    return h, z


def dense(parameters: Values, h_BxHxWxC: Rounded) -> Rounded:
    """The logits of the last convolution's output."""
    return flat(h_BxHxWxC) @ parameters["dense/kernel"] + parameters["dense/bias"]


def backward(
    parameters: Values, h: list[Rounded], z: list[Rounded], dh_BxHxWxF: Rounded, lean: float
) -> dict[str, Rounded]:
    """The gradient of every convolution's parameters, last layer first, of what arrives from the dense layer."""
    gradients = {}
    for layer in reversed(range(convolutions(parameters))):
        dz_BxHxWxF = pooled_backward(dh_BxHxWxF, z[layer], lean)
        gradients[f"conv_{layer}/kernel"] = kernel_gradient(h[layer], dz_BxHxWxF)
        gradients[f"conv_{layer}/bias"] = pixels(dz_BxHxWxF).sum(axis=0)
        if layer:
            dh_BxHxWxF = convolve(dz_BxHxWxF, turned(parameters[f"conv_{layer}/kernel"]))
    return gradients


def pooled(z_BxHxWxF: Rounded) -> Rounded:
    """The maximum of each window, where it is positive."""
    return relu(largest(windows(z_BxHxWxF)))


def pooled_backward(gradient: Rounded, z_BxHxWxF: Rounded, lean: float) -> Rounded:
    """The gradient of `pooled`."""
    z_windows = windows(z_BxHxWxF)
    return unwindowed(route(gate(gradient, largest(z_windows), lean), z_windows, lean))


def convolve(x_BxHxWxC: Rounded, w_3x3xCxF: Rounded) -> Rounded:
    """The cross-correlation (B, H, W, F), with zeros around the image.

    Its gradient by x is the convolution of what arrives with the kernel as `turned`.
    """
    *image, _ = x_BxHxWxC.value.shape
    product_NxF = pixels(neighbourhoods(x_BxHxWxC)) @ pixels(w_3x3xCxF)
    return reshaped(product_NxF, (*image, -1))


def kernel_gradient(x_BxHxWxC: Rounded, gradient: Rounded) -> Rounded:
    """The gradient of `convolve` by the kernel (3, 3, C, F)."""
    dw_9CxF = pixels(neighbourhoods(x_BxHxWxC)).T @ pixels(gradient)
    return reshaped(dw_9CxF, (3, 3, x_BxHxWxC.value.shape[-1], -1))


def turned(w_3x3xCxF: Rounded) -> Rounded:
    """The kernel turned around, its channels swapped."""
    return rearranged(w_3x3xCxF, lambda w: w[::-1, ::-1].swapaxes(2, 3))


def neighbourhoods(x_BxHxWxC: Rounded) -> Rounded:
    """The 3×3 pixels around each (B, H, W, 9·C), row by row, zeros beyond the border."""

    def around(x: Array) -> Array:
        _, H, W, _ = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return np.concatenate([padded[:, i : i + H, j : j + W] for i in range(3) for j in range(3)], axis=-1)

    return rearranged(x_BxHxWxC, around)


def windows(x_BxHxWxC: Rounded) -> Rounded:
    """The 2×2 windows (B, H/2, W/2, C, 4)."""
    B, H, W, C = x_BxHxWxC.value.shape
    split = reshaped(x_BxHxWxC, (B, H // 2, 2, W // 2, 2, C))
    return rearranged(split, lambda x: x.transpose(0, 1, 3, 5, 2, 4).reshape(B, H // 2, W // 2, C, 4))


def unwindowed(x: Rounded) -> Rounded:
    """The image (B, H, W, C) of 2×2 windows (B, H/2, W/2, C, 4): the inverse of `windows`."""
    B, H, W, C, _ = x.value.shape
    split = reshaped(x, (B, H, W, C, 2, 2))
    return rearranged(split, lambda x: x.transpose(0, 1, 4, 2, 5, 3).reshape(B, 2 * H, 2 * W, C))


def largest(z: Rounded) -> Rounded:
    """The maximum over the last axis. The error of another entry shows as often as it may be the larger."""
    at_top, chance = contest(z)
    return Rounded(z.value.max(-1), (z.variance * (at_top + chance)).sum(-1))


def route(gradient: Rounded, z: Rounded, lean: float = 0) -> Rounded:
    """The gradient of `largest`: what arrives, at the maximum and nowhere else.

    ``lean`` moves the deviation of a swap from the maximum to the others, as in `rounding.gate`.
    """
    at_top, chance = contest(z)
    lost = at_top * chance.sum(-1, keepdims=True)
    share = at_top + lean * (np.sqrt(chance) - np.sqrt(lost))
    arriving, variance = gradient.value[..., None], gradient.variance[..., None]
    return Rounded(arriving * share, variance * (at_top + chance) + arriving**2 * (lost + chance))


def flat(x: Rounded) -> Rounded:
    """Every example a row."""
    return reshaped(x, (x.value.shape[0], -1))


def pixels(x: Rounded) -> Rounded:
    """Every pixel a row, its channels in columns."""
    return reshaped(x, (-1, x.value.shape[-1]))


def reshaped(x: Rounded, shape: tuple[int, ...]) -> Rounded:
    """Values and variances in another shape."""
    return rearranged(x, lambda array: array.reshape(shape))


def rearranged(x: Rounded, move: Callable[[Array], Array]) -> Rounded:
    """Values and variances in another order: nothing is rounded."""
    return Rounded(move(x.value), move(x.variance))


def convolutions(parameters: Values) -> int:
    """The number of convolutions."""
    return len(parameters) // 2 - 1
