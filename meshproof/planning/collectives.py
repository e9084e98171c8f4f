"""How long a collective takes on a ring of links: seconds, of bytes and of bytes per second.

``size`` is the whole logical tensor in bytes. ``bandwidth`` is what a device sends over one mesh axis in bytes per
second, to both neighbours together; ``axes`` is over how many axes of links one mesh axis is laid out. ``latency`` is
that of one hop in seconds. Source, where none is named: Scaling Book, "Sharded matrices".
"""

from __future__ import annotations


def all_gather_seconds(
    size: float, bandwidth: float, axes: int = 1, devices: float | None = None, latency: float = 0.0
) -> float:
    """Of so many ``devices``: each sends (n − 1)/n of the tensor. Without their number, of very many.

    At least half the ring in hops: max(latency · n/2, size / (bandwidth · axes)).
    """
    if devices is None:
        return size / (bandwidth * axes)
    return max(latency * ring_hops(devices), size * (devices - 1) / devices / (bandwidth * axes))


def reduce_scatter_seconds(
    size: float, bandwidth: float, axes: int = 1, devices: float | None = None, latency: float = 0.0
) -> float:
    """As long as the all-gather that undoes it."""
    return all_gather_seconds(size, bandwidth, axes, devices, latency)


def all_reduce_seconds(
    size: float, bandwidth: float, axes: int = 1, devices: float | None = None, latency: float = 0.0
) -> float:
    """A reduce-scatter, then an all-gather."""
    return 2 * all_gather_seconds(size, bandwidth, axes, devices, latency)


def all_to_all_seconds(
    size: float,
    bandwidth: float,
    axes: int = 1,
    both_ways: bool = True,
    devices: float | None = None,
    latency: float = 0.0,
) -> float:
    """A quarter of an all-gather on a ring that sends both ways, half of it on one that sends one way.

    Both ways that holds of any even number of ``devices``: the more there are, the less goes to each of them. The
    farthest is half the ring away; one way, all of it but one hop.
    """
    if not both_ways:
        hops = latency * (devices - 1) if devices else 0.0
        return max(hops, all_gather_seconds(size, bandwidth, axes, devices) / 2)
    return max(latency * ring_hops(devices or 0), all_gather_seconds(size, bandwidth, axes) / 4)


def send_seconds(size: float, bandwidth: float, hops: float = 1, latency: float = 0.0) -> float:
    """From one device to another: the first byte takes ``hops``, the others follow. ("How to think about TPUs".)"""
    return size / bandwidth + hops * latency


def ring_hops(devices: float) -> float:
    """Hops until everybody has everything, if a ring sends both ways."""
    return devices / 2


def latency_bound_bytes(bandwidth: float, latency: float) -> float:
    """A buffer that is smaller than this takes as long as an empty one."""
    return bandwidth * latency
