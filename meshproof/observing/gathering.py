"""What several processes hold, brought together: all ask for it at the same time, and each gets the same.

In one process everything is as it was.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from meshproof.measures.layout import Index, LeafLayout
from meshproof.measures.numerics import bitwise
from meshproof.measures.verdicts import LeafRecord

Copies = Mapping[Index, np.ndarray]
"""What a process holds of an array, by the part of it."""


def on_host(array: Any) -> np.ndarray:
    """A copy of a whole array."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.array(array)
    return np.array(multihost_utils.process_allgather(array, tiled=True))


def gathered(value: Any) -> list[Any]:
    """What each process has, in their order: anything that can be pickled."""
    if not jax.distributed.is_initialized():
        return [value]
    content = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = np.ravel(multihost_utils.process_allgather(np.int32(len(content))))
    padded = np.zeros(1 << int(sizes.max()).bit_length(), np.uint8)  # few sizes: each is a program of its own
    padded[: len(content)] = content
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def whole_layout(layout: tuple[LeafLayout, ...]) -> tuple[LeafLayout, ...]:
    """Each leaf with the shards of all processes."""
    if not jax.distributed.is_initialized():
        return layout
    everywhere = gathered([leaf.shards for leaf in layout])
    return tuple(
        replace(leaf, shards=tuple(sorted((s for one in held for s in one), key=lambda shard: shard.position)))
        for leaf, held in zip(layout, zip(*everywhere, strict=True), strict=True)
    )


def differing_copies(held: Mapping[int, tuple[str, Copies]]) -> dict[int, LeafRecord]:
    """Arrays of which two processes hold the same part with other bits; of each the worst such pair."""
    if not jax.distributed.is_initialized():
        return {}
    digests = gathered(
        {
            (place, index): sha256(data.tobytes()).digest()
            for place, (_, copies) in held.items()
            for index, data in copies.items()
        }
    )
    several = {key: {each[key] for each in digests if key in each} for key in sorted(set().union(*digests))}
    differing = [key for key, found in several.items() if len(found) > 1]
    if not differing:
        return {}
    found: dict[int, LeafRecord] = {}
    arrays = gathered({key: held[key[0]][1][key[1]] for key in differing if key[1] in held[key[0]][1]})
    for place, index in differing:
        path = held[place][0]
        (first, one), *others = [(n, each[place, index]) for n, each in enumerate(arrays) if (place, index) in each]
        for number, other in others:
            names = f"process {first}", f"process {number}"
            [record] = bitwise({path: one}, {path: other}, names=names).records
            found[place] = max(found.get(place, record), record, key=lambda record: record.error)
    return found
