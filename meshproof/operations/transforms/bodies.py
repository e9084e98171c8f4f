"""What devices compute in a composition: the communication of the usual strategies, on whole numbers.

Each has a rectifier, whose mask a backward pass must keep or recompute, and names what a rematerialisation may save.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from meshproof.operations.transforms import Body, Collectives

SAVED = "mixed"
"""The name of what a policy may save."""

Pair = tuple[Any, Any]


def positive(x: Any) -> Any:
    """What is above 0. At 0 its slope is 0, not a half as that of a maximum: numbers stay whole."""
    return jnp.where(x > 0, x, 0)


def mixed(x: Any, w: Any) -> Any:
    """The rectified product, by its name."""
    return checkpoint_name(positive(x) @ w, SAVED)


def data(devices: Collectives, x: Any, w: Any) -> Pair:
    """Rows are split, weights are not; a statistic of all rows enters each."""
    return mixed(x, w) + devices.psum(x.sum(-2, keepdims=True)), w


def tensor(devices: Collectives, x: Any, w: Any) -> Pair:
    """Weights are split by what they contract, and partial products are added."""
    return devices.psum(mixed(devices.mine(x, -1), w)) + x, w


def fsdp(devices: Collectives, x: Any, w: Any) -> Pair:
    """Rows and weights are split, and weights gathered for use."""
    return mixed(x, devices.all_gather(w, -2)), w


def ring(devices: Collectives, x: Any, w: Any) -> Pair:
    """Rows go to the next device."""
    return mixed(x, w) + devices.ppermute(x), w


def scattered(devices: Collectives, x: Any, w: Any) -> Pair:
    """Devices whose rows' sum is positive multiply the rows of all, and what they have is added and split."""
    takes_part = x.sum((-2, -1), keepdims=True) > 0
    return x + devices.psum_scatter(mixed(devices.all_gather(x, -2), w) * takes_part, -2), w


def exchanged(devices: Collectives, x: Any, w: Any) -> Pair:
    """Rows become columns and return, as in sequence parallelism."""
    turned = devices.all_to_all(x, -1, -2)
    return mixed(x, w) + devices.all_to_all(positive(turned), -2, -1), w


def averaged(devices: Collectives, x: Any, w: Any) -> Pair:
    """A mean of all rows enters those of every second device."""
    return mixed(x, w) + devices.pmean(x.sum(-2, keepdims=True)) * (devices.place(x) % 2), w


def shifted(devices: Collectives, x: Any, w: Any) -> Pair:
    """Rows go to the next device, and none to the first, as between the stages of a pipeline."""
    return mixed(x, w) + devices.shifted(x), w


def stacked(devices: Collectives, x: Any, w: Any) -> Pair:
    """Weights of all devices are stacked, and each multiplies with the sum of half of them."""
    every = devices.stacked(w)
    return mixed(x, every[..., ::2, :, :].sum(-3)), w


def received(devices: Collectives, x: Any, w: Any) -> Pair:
    """Each has something for each, in a new dimension −3: x for the second, its double for the third, nothing for the
    first. What is for a device is added."""
    times = (jnp.arange(devices.size, dtype=x.dtype) % 3)[:, None, None]
    return mixed(x, w) + devices.own_sum(x[..., None, :, :] * times), w


def dealt(devices: Collectives, x: Any, w: Any) -> Pair:
    """The same, and what is for a device is what it gets; it adds that of every second one."""
    times = (jnp.arange(devices.size, dtype=x.dtype) % 3)[:, None, None]
    return mixed(x, w) + devices.dealt(x[..., None, :, :] * times)[..., ::2].sum(-1), w


BODIES = (
    Body("data", data, (0, None)),
    Body("tensor", tensor, (None, 0)),
    Body("fsdp", fsdp, (0, 0)),
    Body("ring", ring, (0, None)),
    Body("scattered", scattered, (0, None)),
    Body("exchanged", exchanged, (0, None)),
    Body("averaged", averaged, (0, None)),
    Body("shifted", shifted, (0, None)),
    Body("stacked", stacked, (0, None)),
    Body("received", received, (0, None)),
    Body("dealt", dealt, (0, None)),
)
