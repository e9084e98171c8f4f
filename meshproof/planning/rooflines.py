"""When does a strategy compute, and when does it wait for a link?

A layer is two products, ``[B, D] · [D, F] · [F, D]``, in bfloat16: attention and a gate are left out. B is the batch in
tokens of all chips, D the model's width, F that of its hidden layer, N = X·Y the chips: X split the batch (and, in
FSDP, the parameters), Y the hidden layer. C is ``flops``, operations per second of a chip; W is ``bandwidth``, bytes
per second that it sends over one mesh axis. M_X and M_Y count the axes of links that X and Y are laid out over.

Source, where none is named: Scaling Book, "How to parallelize a Transformer for training".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

BFLOAT16 = 2
"""Bytes of a number."""


@dataclass(frozen=True)
class Times:
    """Seconds of products and of communication that may overlap."""

    math: float
    comms: float

    @property
    def ratio(self) -> float:
        """T_math / T_comms: above 1 the chips compute all the time."""
        return self.math / self.comms if self.comms else float("inf")

    @property
    def least(self) -> float:
        """Seconds if everything overlaps."""
        return max(self.math, self.comms)

    @property
    def most(self) -> float:
        """Seconds if nothing overlaps."""
        return self.math + self.comms


def intensity(flops: float, bandwidth: float) -> float:
    """α = C/W: operations that a chip does in the time of one byte. ("All about rooflines".)"""
    return flops / bandwidth


def data_parallel(B: float, D: float, F: float, X: float, flops: float, bandwidth: float, axes: int = 1) -> Times:
    """A layer's backward pass: 8BDF/(XC) of products, and 8DF/W for the all-reduce of its gradients."""
    return Times(8 * B * D * F / (X * flops), 8 * D * F / (bandwidth * axes))


def data_parallel_efficiency(
    tokens: float, devices: float, flops: float, bandwidth: float, axes: int = 1, overlaps: bool = True
) -> float:
    """Throughput of so many devices over as many times that of one, at so many ``tokens`` on each: up to 1.

    A step is 12BDF/(XC) of products, two thirds of them in the backward pass, behind which the all-reduce of gradients
    hides: 8DF/W · (n − 1)/n. The source's own terms, with the ring of "Sharded matrices".
    """
    products = 12 * tokens / flops
    comms = 8 / (bandwidth * axes) * (devices - 1) / devices
    hidden = min(comms, products * 2 / 3) if overlaps else 0.0
    return products / (products + comms - hidden)


def fsdp(B: float, D: float, F: float, X: float, flops: float, bandwidth: float, axes: int = 1) -> Times:
    """A layer's forward pass: 4BDF/(XC) of products, and 4DF/W for the all-gather of its parameters.

    The backward pass has twice of both: it gathers again, and reduce-scatters.
    """
    return Times(4 * B * D * F / (X * flops), 4 * D * F / (bandwidth * axes))


def tensor_parallel(B: float, D: float, F: float, Y: float, flops: float, bandwidth: float, axes: int = 1) -> Times:
    """A layer's forward pass: 4BDF/(YC) of products, 4BD/W for an all-gather and a reduce-scatter of activations."""
    return Times(4 * B * D * F / (Y * flops), 4 * B * D / (bandwidth * axes))


def fsdp_tensor_parallel(
    B: float, D: float, F: float, X: float, Y: float, flops: float, bandwidth: float, M_X: int, M_Y: int
) -> Times:
    """A layer's forward pass: 4BDF/(NC) of products, 4DF/(Y·W·M_X) for parameters and 4BD/(X·W·M_Y) for activations."""
    comms = 4 * D * F / (Y * bandwidth * M_X) + 4 * B * D / (X * bandwidth * M_Y)
    return Times(4 * B * D * F / (X * Y * flops), comms)


def tokens_per_chip(flops: float, bandwidth: float, axes: int = 1) -> float:
    """B/X that DP and FSDP need to be compute-bound: C/(W·axes)."""
    return intensity(flops, bandwidth) / axes


def tokens_per_chip_with_tensors(F: float, flops: float, bandwidth: float, M_X: int, M_Y: int) -> float:
    """B/N that FSDP with tensor parallelism needs, at the best X: 4α²/(M_X·M_Y·F)."""
    return 4 * intensity(flops, bandwidth) ** 2 / (M_X * M_Y * F)


def best_fsdp_shards(B: float, F: float, N: float, M_X: int, M_Y: int) -> float:
    """X_opt = sqrt(B/F · M_X/M_Y · N), at which FSDP and tensor parallelism together move the least."""
    return sqrt(B / F * M_X / M_Y * N)


def best_ratio(B: float, F: float, N: float, flops: float, bandwidth: float, M_X: int, M_Y: int) -> float:
    """T_math/T_comms at X_opt: sqrt(B·F·M_X·M_Y) / (2α·sqrt(N)), which grows with the root of the batch."""
    return sqrt(B * F * M_X * M_Y) / (2 * intensity(flops, bandwidth) * sqrt(N))


def most_tensor_shards(F: float, flops: float, bandwidth: float, axes: int = 1) -> float:
    """Y beyond which tensor parallelism waits for its links: axes·F/α, whatever the batch."""
    return axes * F / intensity(flops, bandwidth)


def least_hidden_width(Y: float, flops: float, bandwidth: float, axes: int = 1) -> float:
    """F that so many tensor shards need: F > Y·α/axes."""
    return Y * intensity(flops, bandwidth) / axes


def most_chips(B: float, flops: float, bandwidth: float, axes: int = 1) -> float:
    """Chips over which FSDP can split a batch of B tokens before it waits for its links."""
    return B / tokens_per_chip(flops, bandwidth, axes)


def train_flops(parameters: float, tokens: float) -> float:
    """6 · parameters · tokens: 2 forward and 4 backward. ("All the Transformer math".)"""
    return 6 * parameters * tokens


def recomputed_flops(parameters: float, tokens: float) -> float:
    """8 · parameters · tokens, where the backward pass recomputes blocks. ("All the Transformer math".)"""
    return 8 * parameters * tokens


def attention_flops(layers: float, D: float, length: float, tokens: float) -> float:
    """12 · L · T · D a token, beside the parameters' own: scores and their use. Causal attention is not halved.

    D is heads times their width. Chowdhery et al. 2022, "PaLM", appendix B.
    """
    return 12 * layers * length * D * tokens


def attention_share(D: float, length: float) -> float:
    """Attention's operations over those of a layer's own parameters with F = 4D and a gate: T/(8D).

    ("All the Transformer math".)
    """
    return length / (8 * D)


def training_seconds(flops: float, chips: float, flops_per_chip: float, utilization: float = 1.0) -> float:
    """Of so many operations, at this share of the peak (MFU)."""
    return flops / (chips * flops_per_chip * utilization)


def utilization(flops: float, chips: float, flops_per_chip: float, seconds: float) -> float:
    """MFU: the model's operations over those that the chips could have done. What is recomputed is no gain."""
    return flops / (chips * flops_per_chip * seconds)
