"""The sizes of a model, read from the shapes of its parameters and of its batch."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

NUMBER = re.compile(r"\d+")
LEAST_SHARE = 0.1
"""The share of the parameters that layers have at least, embeddings being the others."""


def sizes_of(parameters: Shapes, batch: Mapping[str, tuple[Shape, str]]) -> dict[str, Any]:
    """Sizes as `Model` names them, as far as shapes tell; ``examples`` beside them.

    Layers are parameters that are numbered alike, or stacked along a first dimension. Their width D is the dimension
    that most of their matrices have, F the widest other one. A matrix [V, D] beside the layers that is no position of a
    token is the embedding. ``batch`` has the shape and the dtype of each field. A model whose layers are not found has
    its number of parameters only.
    """
    total = sum(map(prod, parameters.values()))
    fields = list(batch.values())
    words = [shape for shape, dtype in fields if dtype.startswith(("int", "uint")) and len(shape) == 2]
    found: dict[str, Any] = {"parameters": total, "examples": fields[0][0][0] if fields else 0}
    length = words[0][1] if words else 0
    layers, layer, rest = layers_of(parameters)
    matrices = [shape for shape in layer if len(shape) >= 2]
    if not matrices:
        return found | ({"length": length} if length else {})
    counted = Counter(size for shape in matrices for size in set(shape))
    outside = {size for shape in rest.values() if len(shape) == 2 for size in shape}
    width = max(counted, key=lambda size: (counted[size], size in outside, size))
    others = [prod(shape) // width for shape in matrices if width in shape]
    heads = [shape[1] for shape in matrices if len(shape) == 3 and shape[0] == width]
    tables = [shape for path, shape in rest.items() if len(shape) == 2 and width in shape and "pos" not in path.lower()]
    rows = [prod(shape) // width for shape in tables if prod(shape) // width != length]
    vocabulary = max(rows, default=0) if words else 0
    found |= {"layers": layers, "d_model": width, "d_ff": max(others), "length": length, "vocabulary": vocabulary}
    found |= {"heads": max(heads)} if heads else {}
    found |= {"kv_heads": min(heads)} if heads and max(heads) % min(heads) == 0 else {}
    found |= {"tied": rows.count(vocabulary) == 1} if vocabulary else {}
    return {name: size for name, size in found.items() if size or name == "tied"}


def layers_of(parameters: Shapes) -> tuple[int, list[Shape], dict[str, Shape]]:
    """How many equal layers there are, the shapes of one, and the parameters outside of them.

    0 where none are seen, and where there are several stacks, as an encoder and a decoder.
    """
    least = LEAST_SHARE * sum(map(prod, parameters.values()))
    found = [
        (layers, names, layer)
        for layers, names, layer in (*numbered(parameters), *stacked(parameters))
        if layers > 1 and layers * sum(map(prod, layer)) >= least
    ]
    if not found or any(names.isdisjoint(found[0][1]) for _, names, _ in found):
        return 0, [], dict(parameters)
    layers, names, layer = found[0]
    return layers, layer, {path: shape for path, shape in parameters.items() if path not in names}


def numbered(parameters: Shapes) -> Iterator[tuple[int, set[str], list[Shape]]]:
    """Parameters whose paths differ in one number: ``block_0/norm/scale``, ``layers/1/kernel``."""
    alike: dict[tuple[str, int], dict[int, dict[str, Shape]]] = defaultdict(lambda: defaultdict(dict))
    for path, shape in parameters.items():
        for match in list(NUMBER.finditer(path))[:1]:
            alike[path[: match.start()], 0].setdefault(int(match[0]), {})[path[match.end() :]] = shape
    for (prefix, _), layers in alike.items():
        first = next(iter(layers.values()))
        if all(layer == first for layer in layers.values()):
            names = {f"{prefix}{number}{rest}" for number, layer in layers.items() for rest in layer}
            yield len(layers), names, list(first.values())


def stacked(parameters: Shapes) -> Iterator[tuple[int, set[str], list[Shape]]]:
    """Parameters below one name that all have the same first dimension, and beside it one at least; below none, those
    that have the first dimension of all kernels of three."""
    below: dict[str, dict[str, Shape]] = defaultdict(dict)
    for path, shape in parameters.items():
        below[path.partition("/")[0]][path] = shape
    top = {path: shape for path, shape in parameters.items() if "/" not in path}
    depths = {shape[0] for shape in top.values() if len(shape) > 2}
    if len(depths) == 1:
        below[""] = {path: shape for path, shape in top.items() if len(shape) > 1 and shape[0] in depths}
    for shapes in below.values():
        firsts = {shape[0] for shape in shapes.values() if shape}
        if len(firsts) == 1 and len(shapes) > 1 and all(len(shape) >= 2 for shape in shapes.values()):
            yield firsts.pop(), {*shapes}, [shape[1:] for shape in shapes.values()]


def in_words(sizes: Mapping[str, Any]) -> str:
    """Sizes that were read, for a person."""
    return ", ".join(f"{name} {size:,}" if type(size) is int else f"{name} {size}" for name, size in sizes.items())
