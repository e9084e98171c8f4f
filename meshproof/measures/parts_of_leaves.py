"""Where a leaf is wrong: in which part of a dimension, and whether equal parts changed places or lengths.

A fault that depends on a device's place shows in what that device makes: some rows of a table, the columns of its
heads, the order in which experts answer. Asked only of leaves that have failed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MOST, LARGEST = 1024, 1 << 20
"""The largest number of equal parts that is looked for, and the most elements of a leaf in which: it takes seconds."""

CLEARLY = 10.0
"""How many times its bound what is wrong in one part alone must be off: where all is, rounding hides some of it."""


def place(saw: np.ndarray, is_: np.ndarray, allowed: np.ndarray) -> str:
    """What is wrong in which part of a failed leaf, in words; empty where no dimension tells.

    All are float64 and of one shape; an element of ``saw`` may be off truth's, ``is_``, by one of ``allowed``.
    """
    few_first = [*divisions(is_.shape)] if is_.size <= LARGEST else []
    for told, divided in ((exchanged, few_first), (alike, few_first[::-1]), (scaled, few_first)):
        for dimension, parts in divided:
            if said := told(*(np.stack(np.split(each, parts, dimension)) for each in (saw, is_, allowed))):
                return f"of its {parts} equal parts in dimension {dimension} {said}"
    for dimension in range(is_.ndim):
        if said := some(*(np.moveaxis(each, dimension, 0) for each in (saw, is_, allowed))):
            return f"in dimension {dimension} (of 0 to {is_.shape[dimension] - 1}) it is {said}"
    return ""


def divisions(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Every dimension with every number of equal parts it has, fewest parts first."""
    for parts in range(2, MOST + 1):
        yield from ((dimension, parts) for dimension, size in enumerate(shape) if size and size % parts == 0)


def lengths(parts: np.ndarray) -> np.ndarray:
    """The Frobenius norm of each part, (parts,)."""
    return np.linalg.norm(parts.reshape(len(parts), -1), axis=1)


def exchanged(saw: np.ndarray, is_: np.ndarray, allowed: np.ndarray) -> str:
    """Whether each part is one of truth's, and some are another one."""
    bound = lengths(allowed)
    if (np.abs(np.sort(lengths(saw)) - np.sort(lengths(is_))) > bound.max()).any():
        return ""
    near = np.stack([lengths(saw - other) <= np.maximum(bound, bound[of]) for of, other in enumerate(is_)], axis=1)
    if near.diagonal().all() or not ((near.sum(0) == 1).all() and (near.sum(1) == 1).all()):
        return ""
    moved = [f"part {at} holds what part {of} should" for at, of in enumerate(near.argmax(1)) if at != of]
    return f"{len(moved)} have changed places: {shown(moved, 3)}"


def alike(saw: np.ndarray, is_: np.ndarray, allowed: np.ndarray) -> str:
    """Whether all parts are one, where no other of truth's is its first."""
    bound = lengths(allowed)
    if not saw.any() or (lengths(saw - saw[0]) > bound).any() or (lengths(is_ - is_[0])[1:] <= 2 * bound[1:]).any():
        return ""
    return "all are alike, and should not be"


def scaled(saw: np.ndarray, is_: np.ndarray, allowed: np.ndarray) -> str:
    """Whether each part is truth's times a number of its own."""
    bound = lengths(allowed)
    if is_[0].size == 1 or not ((lengths(is_) > bound) & (lengths(saw) > bound)).all():
        return ""
    times = (saw * is_).reshape(len(is_), -1).sum(1) / lengths(is_) ** 2
    rest, off = saw - times.reshape(-1, *[1] * (is_.ndim - 1)) * is_, saw - is_
    if (lengths(rest) > bound).any() or np.linalg.norm(rest) > np.linalg.norm(off) / 100 or np.ptp(times) < 1e-3:
        return ""
    return f"each is what it should be times a number of its own: {shown([f'{each:.4g}' for each in times], 8)}"


def some(saw: np.ndarray, is_: np.ndarray, allowed: np.ndarray) -> str:
    """Whether the wrong ones of the first dimension's indices, or the right ones, follow each other."""
    off, bound = lengths(saw - is_), lengths(allowed)
    wrong = off > bound
    if (off[wrong] < CLEARLY * bound[wrong]).any():
        return ""
    begins = np.flatnonzero(np.diff(wrong)) + 1
    inside = len(begins) == 2 and begins[1] - begins[0] == 1
    if not 0 < len(begins) <= 2 or inside or np.count_nonzero(~wrong) == 1:  # rounding may decide one element's sign
        return ""
    if wrong[0] and wrong[-1]:
        return f"right at {ran(~wrong)} alone"
    return f"{'wrong' if saw[wrong].any() else '0'} at {ran(wrong)}, and right elsewhere"


def ran(marked: np.ndarray) -> str:
    """The first and the last index that is marked."""
    first, last = np.flatnonzero(marked)[[0, -1]]
    return f"{first} to {last}" if last > first else str(first)


def shown(parts: list[str], most: int) -> str:
    """The first ``most`` of them."""
    return ", ".join(parts[:most]) + (", …" if len(parts) > most else "")
