"""Bytes on the wire: what a device sends for a collective, where its devices form a ring.

    all-gather, reduce-scatter, all-to-all      S(n − 1)/n
    all-reduce                                  2S(n − 1)/n: a reduce-scatter, then an all-gather
    collective-permute, collective-broadcast    S, by each device that is a source

S are the logical bytes of `Collective.bytes`, n the devices of a group. Nothing sends less (Patarasuk and Yuan, 2009,
"Bandwidth optimal all-reduce algorithms"). What was *written* counts: an all-reduce of zeros in place of an all-gather,
or one that is then sliced in place of a reduce-scatter, sends twice what the logical operation needs.
"""

import re
from collections.abc import Iterable, Mapping
from math import prod

PART = re.compile(r"\((\d+)\)(\d+)")
"""The groups and their size in a part of an axis, behind the axis's name and a colon."""

_ROUNDS = {"all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "ragged-all-to-all": 1, "all-reduce": 2}
_FORWARDED = ("collective-permute", "collective-broadcast")


def parts_sent(operation: str, size: int, devices: int) -> int:
    """What a device sends for a collective of ``size`` bytes, in ``devices``-ths of a byte, so that sums are exact.

    Raises ``ValueError`` for an unknown operation.
    """
    if operation in _FORWARDED:
        return size * devices
    if operation not in _ROUNDS:
        raise ValueError(f"operation {operation!r}; expected one of {', '.join((*_ROUNDS, *_FORWARDED))}")
    return _ROUNDS[operation] * size * (devices - 1)


def best_wire_bytes(operation: str, size: int, devices: int) -> int:
    """Bytes that the best realisation of a logical operation sends per device, rounded up."""
    return -(-parts_sent(operation, size, devices) // devices)


def devices_of(axes: Iterable[str], mesh: Mapping[str, int]) -> int:
    """The devices of a group over these axes of a census, of which some may be parts, as ``data:(1)2``.

    Raises ``KeyError`` for an axis that the mesh lacks.
    """
    return prod(span_of(axis, mesh)[0] for axis in axes)


def span_of(axis: str, mesh: Mapping[str, int]) -> tuple[int, int]:
    """The devices along an axis of a census, and how far apart they are in the mesh, counted in devices.

    A part ``data:(2)4`` has the second of three factors of its axis: two groups, four devices of each, and the rest.
    Raises ``KeyError`` for an axis that the mesh lacks, ``ValueError`` for a part that it does not divide into.
    """
    name, colon, part = axis.partition(":")
    whole, names, sizes = mesh[name], list(mesh), list(mesh.values())
    stride = prod(sizes[names.index(name) + 1 :])
    if not colon:
        return whole, stride
    found = PART.fullmatch(part)
    outer, size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not outer * size or whole % (outer * size):
        raise ValueError(f"{axis} is no part of {name}, which has {whole} devices")
    return size, stride * (whole // (outer * size))
