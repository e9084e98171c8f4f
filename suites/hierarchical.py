"""Gradients that are scattered over some axes and gathered there again: a hierarchical all-reduce, written by hand.

Between hosts only the shards of each host are summed, a part of the bytes that every gradient has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from meshproof.contract import Communication

NUMBER = 4
"""Bytes of float32."""


def gathered_again(step: Iterable[Communication]) -> dict[tuple[str, ...], int]:
    """The bytes of gradients that are scattered over axes and gathered there, all of them."""
    scattered, gathered = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for line in step:
        if line.payload == "gradients":
            scattered[line.axes] += line.bytes if line.operation == "reduce-scatter" else 0
            gathered[line.axes] += line.bytes if line.operation == "all-gather" else 0
    return {axes: size for axes, size in scattered.items() if size and gathered[axes] == size}


def left_in_shards(step: Iterable[Communication], mesh: Mapping[str, int], axis: str) -> int:
    """The bytes that gradients lack over an axis because there shards are summed that are gathered again over others:
    as many of them as there are shards make up the whole."""
    summed = [line for line in step if (line.operation, line.payload) == ("all-reduce", "gradients")]
    for axes, size in gathered_again(step).items():
        shard = sum(line.bytes for line in summed if axis in line.axes and not {*axes} & {*line.axes})
        if shard * prod(mesh[name] for name in axes) == size:
            return size - shard
    return 0


def padding(step: Iterable[Communication], mesh: Mapping[str, int], axis: str) -> int:
    """The most bytes by which a gradient is longer over an axis, so that its shards are alike."""
    return NUMBER * sum(prod(mesh[name] for name in axes) - 1 for axes in gathered_again(step) if axis in axes)
