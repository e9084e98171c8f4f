"""Gradients of a table of which each device reads the rows of its own tokens, as one of positions.

Over an axis that splits the tokens a device has the gradient of its rows alone. These are reduced over the other batch
axes, and then all devices sum their tables, in which they have zeros elsewhere: each byte is reduced once, and none is
reduced whole over both. A compiler may write the sum as a gather.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from meshproof.adopting.traffic import Moved, Seen, Shape, Weight, key
from meshproof.measures.traffic import is_sum_of_shards


def tables(
    moved: Iterable[Moved], of: list[Weight], mesh: Mapping[str, int], batch_axes: set[str], token_axes: set[str]
) -> tuple[list[Moved], list[Seen], frozenset[str]]:
    """What is left of what moved, what of it are gradients of tables, and the paths of these."""
    left, found, paths = list(moved), list[Seen](), set[str]()
    for weight in of:
        for axis in sorted(token_axes & batch_axes):
            whole, others = key(weight.local(weight.in_use, mesh)), batch_axes - {axis}
            summed = [each for each in left if _sums(each, axis) and key(each[1]) == whole]
            parts = set(_parts(weight, mesh, mesh[axis]))
            reduced = [
                each
                for each in left
                if each[0].operation == "all-reduce" and set(each[0].axes) == others and key(each[1]) in parts
            ]
            if summed and (reduced or (not others and is_sum_of_shards(summed[0][0]))):
                own = [*summed[:1], *reduced[:1]]
                left = [each for each in left if each not in own]
                found += [
                    Seen(("all-reduce", entry.axes, "gradients"), key(shape), entry.bytes or 0, entry.tensors or 1)
                    for entry, shape in own
                ]
                paths.add(weight.path)
                break
    return left, found, frozenset(paths)


def _sums(moved: Moved, axis: str) -> bool:
    entry, _ = moved
    return entry.axes == (axis,) and (entry.operation == "all-reduce" or is_sum_of_shards(entry))


def _parts(weight: Weight, mesh: Mapping[str, int], devices: int) -> Iterator[Shape]:
    """The shapes of a device's rows."""
    local = weight.local(weight.in_use, mesh)
    for dimension, size in enumerate(local):
        if size % devices == 0:
            yield key((*local[:dimension], size // devices, *local[dimension + 1 :]))
