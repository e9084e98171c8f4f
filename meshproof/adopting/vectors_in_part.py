"""Vectors that every device holds whole and computes with in part, as the bias behind a kernel that is split.

Each device then has the gradient of its part. A compiler reduces that part over the batch, and brings the parts
together over the axis that splits the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from meshproof.adopting.traffic import Moved, Shape, Weight, key


def used_in_part(
    of: Iterable[Weight], moved: Iterable[Moved], mesh: Mapping[str, int], batch_axes: set[str]
) -> list[Weight]:
    """The parameters; a vector of which nothing of its own shape is reduced, and one part too many, is in part."""
    over = {axis for axis in batch_axes if mesh[axis] > 1}
    left: Counter[Shape] = Counter()
    for entry, dimensions in moved:
        if entry.operation == "all-reduce" and set(entry.axes) == over and entry.phase != "forward":
            left[key(dimensions)] += entry.tensors or 0
    weights = list(of)
    left.subtract(key(weight.local(weight.in_use, mesh)) for weight in weights)
    for place, weight in enumerate(weights):
        whole = key(weight.shape)
        if len(weight.shape) != 1 or any(map(any, weight.splits)) or left[whole] >= 0:
            continue
        for axis in mesh.keys() - batch_axes:
            if weight.shape[0] % mesh[axis] == 0 and left[part := key((weight.shape[0] // mesh[axis],))] > 0:
                left[whole], left[part] = left[whole] + 1, left[part] - 1
                weights[place] = replace(weight, in_use=((axis,),))
                break
    return weights
