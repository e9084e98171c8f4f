"""Whether two runs of ``init`` drew the same numbers, or others of the same distribution.

A layout may change the stream of random numbers: a trainer that draws each shard with a key of its own draws others
than one device does, and is right. Wrong are shards that drew the same, and a spread that belongs to the shape of a
shard and not of the array.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, log, sqrt

import numpy as np

from meshproof.contract import Leaves
from meshproof.measures.layout import Index, LeafLayout

SAME = 1e-5
"""The relative Frobenius norm of the error up to which values are the same.

Compiled in another program, the last digits of a draw differ; other draws differ by more than the signal."""

MULTIPLE = 6.0
"""Standard deviations by which a mean, or the logarithm of a spread, may differ between two streams."""

FEWEST = 64
"""Values that have a distribution to speak of: of fewer, other draws are taken for right."""


def are_same(seen: np.ndarray, alone: np.ndarray) -> bool:
    """Whether two leaves have the same shape and values, to the last digits."""
    if seen.shape != alone.shape:
        return False
    one, other = (np.ravel(each).astype(np.float64) for each in (seen, alone))
    return float(np.linalg.norm(one - other)) <= SAME * float(np.linalg.norm(other))


def wrong_draws(seen: Leaves, alone: Leaves, layout: tuple[LeafLayout, ...]) -> Iterator[str]:
    """What is wrong with leaves that have other values than those of one device, in words.

    ``layout`` says which parts of a leaf are on which devices.
    """
    shards = {leaf.path: sorted({shard.index for shard in leaf.shards}) for leaf in layout}
    for path, expected in alone.items():
        values = seen.get(path)
        if values is None or values.shape != expected.shape:
            saw = "no such leaf" if values is None else f"shape {values.shape}"
            yield f"{path}: expected shape {expected.shape}, as on one device, saw {saw}"
        elif not are_same(values, expected):
            both = values.astype(np.float64), expected.astype(np.float64)
            yield from (f"{path} {values.shape}: {why}" for why in _wrong(*both, shards.get(path, [])))


def _wrong(seen: np.ndarray, alone: np.ndarray, shards: list[Index]) -> Iterator[str]:
    if twins := _equal_shards(seen, shards):
        if not _equal_shards(alone, list(twins)):
            first, other = twins
            yield f"expected each to draw its own, saw the same in {first} and {other}: fold the place into the key"
        return
    if alone.size > 1 and not np.ptp(alone):
        yield f"expected {np.ravel(alone)[0]:.6g} everywhere, as on one device, saw {np.ravel(seen)[0]:.6g} first"
        return
    if alone.size < FEWEST:
        return
    spread, error = _log_spread(seen)
    expected, its_error = _log_spread(alone)
    if abs(spread - expected) > MULTIPLE * sqrt(error**2 + its_error**2):
        times = np.exp(spread - expected)
        yield (
            f"expected values that spread as on one device, {np.exp(expected):.4g}, saw {np.exp(spread):.4g}, "
            f"{times:.4g} times: the scale is that of another shape, such as a shard's"
        )
    shift = abs(float(seen.mean()) - float(alone.mean()))
    if shift > MULTIPLE * sqrt((seen.var() + alone.var()) / seen.size):
        yield f"expected values about {alone.mean():.4g}, as on one device, saw {seen.mean():.4g}"


def _equal_shards(values: np.ndarray, shards: list[Index]) -> tuple[Index, Index] | None:
    """The first two parts of a leaf that hold the same numbers, and not one number alone."""
    parts: dict[bytes, Index] = {}
    for index in shards:
        part = values[tuple(slice(start, stop) for start, stop in index)]
        if np.ptp(part) and (first := parts.setdefault(part.tobytes(), index)) != index:
            return first, index
    return None


def _log_spread(values: np.ndarray) -> tuple[float, float]:
    """The logarithm of the standard deviation, and its own: √((κ − 1) / 4n), of n values of kurtosis κ."""
    centred = np.ravel(values).astype(np.float64) - values.mean(dtype=np.float64)
    variance = float(np.mean(centred**2))
    if not variance:
        return -inf, 0.0
    kurtosis = float(np.mean(centred**4)) / variance**2
    return log(variance) / 2, sqrt(max(kurtosis - 1, 0.0) / (4 * centred.size))
