"""Whether a device holds all of a leaf that rests split, while something else runs.

What makes arrays there is foreign code: no program tells what it holds. So whatever a Python function of it returns is
looked at, and again and again whatever lives on the devices. A leaf is known by its bits, in any shape.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import jax
import numpy as np

from meshproof.observing.state import array_leaves

T = TypeVar("T")
EVERY = 0.0005
"""Seconds between two looks, and after which a thread that computes lets another one run."""


class Watch:
    """Sentences on the split leaves of a state of which one device held all while ``what`` ran, by path."""

    def __init__(self, state: Any, values: dict[str, np.ndarray], what: str) -> None:
        self.what, self.seen, self.ended = what, dict[str, str](), threading.Event()
        self.before = jax.live_arrays()  # held, so that no other array gets the identity of one of them
        self.known, self.kind = set(map(id, self.before)), type(jax.numpy.zeros(()))
        self.split: dict[int, list[tuple[str, jax.Array]]] = {}
        for path, array in array_leaves(state):
            value = values[path]
            if array.sharding.shard_shape(array.shape) != array.shape and len(np.unique(value)) > 1:
                self.split.setdefault(array.size, []).append((path, array))
        self.values = values

    def look(self) -> None:
        """At every array that lives, until all is over."""
        while not self.ended.wait(EVERY):
            for array in jax.live_arrays():
                self.see(array)

    def hear(self, _: Any, event: str, returned: Any) -> None:
        """What a function returns: an array, or several."""
        if event == "return":
            for each in returned if type(returned) in (tuple, list) else (returned,):
                if type(each) is self.kind:
                    self.see(each)

    def see(self, array: jax.Array) -> None:
        """One array, if it is new."""
        if id(array) in self.known or array.is_deleted():
            return
        held = array.sharding.shard_shape(array.shape)
        for path, leaf in self.split.get(int(np.prod(held)), ()):
            if path in self.seen or not (array.dtype == leaf.dtype or both_inexact(array, leaf)):
                continue
            with suppress(RuntimeError, TypeError, ValueError):  # deleted by now, or no numbers
                part = array.addressable_shards[0]
                if np.array_equal(np.ravel(part.data), np.ravel(self.values[path]).astype(array.dtype)):
                    own = list(leaf.sharding.shard_shape(leaf.shape))
                    self.seen[path] = (
                        f"{path}: expected a device to hold {leaf.dtype}{own} while {self.what} runs, saw "
                        f"{array.dtype}{list(held)} on device {part.device.id}, all of it"
                    )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look and hear meanwhile."""
        if not self.split:
            yield
            return
        watch = threading.Thread(target=self.look, daemon=True)
        interval, profile = sys.getswitchinterval(), sys.getprofile()
        sys.setswitchinterval(EVERY)
        watch.start()
        threading.setprofile(self.hear)
        sys.setprofile(self.hear)
        try:
            yield
        finally:
            sys.setprofile(profile)
            threading.setprofile(profile)  # type: ignore[arg-type]
            self.ended.set()
            watch.join()
            sys.setswitchinterval(interval)


def both_inexact(one: jax.Array, other: jax.Array) -> bool:
    """Whether one may be the other in more or fewer digits."""
    return all(jax.numpy.issubdtype(each.dtype, jax.numpy.inexact) for each in (one, other))


def watched(state: Any, values: dict[str, np.ndarray], what: str, run: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
    """What ``run`` returns, and in words each split leaf of the state of which one device held all meanwhile.

    ``values`` are those of the leaves by path, on the host. A leaf of one number throughout is not looked for.
    """
    watch = Watch(state, values, what)
    with watch.watching():
        result = run()
    return result, tuple(watch.seen[path] for path in values if path in watch.seen)


def unwatched(state: Any, values: dict[str, np.ndarray], what: str, run: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
    """What ``run`` returns; nothing is looked at, and it takes a third of the time."""
    return run(), ()
