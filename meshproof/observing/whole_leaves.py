"""Whether a device holds all of a leaf that rests split, while something else runs: seen by looking again and again.

What makes arrays there is foreign code, in threads of its own: no program tells what it holds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import jax

from meshproof.observing.state import array_leaves

T = TypeVar("T")
EVERY = 0.0005
"""Seconds between two looks, and after which a thread that computes lets another one run."""


def watched(state: Any, what: str, run: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
    """What ``run`` returns, and in words each split leaf of which one device held all meanwhile.

    A leaf is known by its shape: none is told that has that of a shard of another one.
    """
    shards = {path: array.sharding.shard_shape(array.shape) for path, array in array_leaves(state)}
    sizes = set(map(prod, shards.values()))
    split = {array.shape: path for path, array in reversed(array_leaves(state)) if prod(array.shape) not in sizes}
    before, seen, ended = jax.live_arrays() if split else [], {}, threading.Event()
    known = set(map(id, before))

    def look() -> None:
        while not ended.wait(EVERY):
            for array in jax.live_arrays():
                held = array.sharding.shard_shape(array.shape) if id(array) not in known else ()
                if path := split.get(held):
                    device = min(each.id for each in array.sharding.device_set)
                    seen[path] = (
                        f"{path}: expected a device to hold {array.dtype}{list(shards[path])} while {what} runs, "
                        f"saw {array.dtype}{list(held)} on device {device}, all of it"
                    )

    watch = threading.Thread(target=look, daemon=True)
    interval = sys.getswitchinterval()
    if split:
        sys.setswitchinterval(EVERY)
        watch.start()
    try:
        return run(), tuple(seen[path] for path in shards if path in seen)
    finally:
        ended.set()
        if split:
            watch.join()
            sys.setswitchinterval(interval)
