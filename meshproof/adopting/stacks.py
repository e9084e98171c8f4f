"""Stacked layers, of which a scan moves one after the other.

A tensor in its body has the shape of a layer, and moves as often as there are layers: together they are the stack. A
layer may move before the scan, or after it, as where each is gathered while the one before it is computed with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from meshproof.adopting.traffic import Moved, Shape, Weight, key, shard_shapes, subsets
from meshproof.hlo import Collective

PASSES = 2
"""How often a layer may be gathered: forward, and again where it is computed again."""


def stacked(moved: Iterable[Moved], of: list[Weight], mesh: Mapping[str, int]) -> tuple[Moved, ...]:
    """What moved, with the layers of a stack as one tensor of its shape, and apart from parameters that have the shape
    of a layer. What is too much or too little for that stays as it is."""
    alike: dict[tuple[str, tuple[str, ...], Shape], list[Moved]] = {}
    for entry, dimensions in moved:
        alike.setdefault((entry.operation, entry.axes, key(dimensions)), []).append((entry, dimensions))
    return tuple(one for each in alike.values() for one in _joined(each, of, mesh))


def gathered_vectors(moved: Iterable[Moved], of: list[Weight], mesh: Mapping[str, int]) -> list[str]:
    """The parameters of one dimension, in a stack too, whose shards are gathered: as a norm's scale is, which costs
    less than to move what it scales."""
    shards = {(entry.axes, key(dimensions)) for entry, dimensions in moved if entry.operation == "all-gather"}
    return [
        weight.path
        for weight in of
        for each in (weight, _layer(weight))
        if each and len(each.shape) == 1
        if any(shape in shard_shapes(each, set(axes), mesh) for axes, shape in shards)
    ]


def _joined(each: list[Moved], of: list[Weight], mesh: Mapping[str, int]) -> Iterator[Moved]:
    (first, dimensions), *_ = each
    shape, known = key(dimensions), [(entry.tensors, entry.bytes) for entry, _ in each if entry.tensors and entry.bytes]
    counts = Counter(weight.shape[0] for weight in of if shape in _shapes(_layer(weight), first, mesh))
    own = sum(shape in _shapes(weight, first, mesh) for weight in of)
    left, size = sum(tensors for tensors, _ in known) - own, sum(size for _, size in known)
    whole_layers = {layers: stacks for layers, stacks in counts.items() if layers > 1 and left % layers == 0}
    fitting = [layers for layers, stacks in whole_layers.items() if stacks <= left // layers <= PASSES * stacks]
    narrow = all(entry.widened == entry.bytes for entry, _ in each)
    if not (fitting or own) and len(known) == len(each) and (parts := _in_parts(shape, first, of, mesh, left)):
        for lead, tensors in parts.items():
            share = size * tensors * prod(lead) // left
            yield replace(first, tensors=tensors, bytes=share, widened=share * narrow), (*lead, *shape)
        return
    if len(counts) == 1 and not own:
        fitting = [*whole_layers]
    if len(known) < len(each) or len(fitting) != 1 or (own and len({size / tensors for tensors, size in known}) > 1):
        yield from each
        return
    if own:
        alone = size * own // (left + own)
        yield replace(first, tensors=own, bytes=alone, widened=alone * narrow), dimensions
        size -= alone
    whole = replace(first, tensors=left // fitting[0], bytes=size, widened=size * narrow)
    yield whole, (fitting[0], *shape)


def _in_parts(
    shape: Shape, entry: Collective, of: list[Weight], mesh: Mapping[str, int], moved: int
) -> dict[tuple[int, ...], int]:
    """How often stacks move, by their dimensions before that shape, where layers are made of parts of it: as Gemma's
    two gates, which lie in one array and are used one after the other. Empty where that does not explain all that
    moved."""
    leads = Counter[tuple[int, ...]]()
    for weight in of:
        layer, depth = _layer(weight), 1
        while layer and depth <= len(weight.shape) - 2:
            if shape in _shapes(layer, entry, mesh):
                leads[weight.shape[:depth]] += 1
            layer, depth = _layer(layer), depth + 1
    once = sum(prod(lead) * stacks for lead, stacks in leads.items())
    passes = moved // once if once and any(len(lead) > 1 for lead in leads) else 0
    return {lead: passes * stacks for lead, stacks in leads.items()} if moved == passes * once <= PASSES * once else {}


def _layer(weight: Weight) -> Weight | None:
    """One layer of a stack whose layers are not split, but where they are updated: as many devices may share these."""
    if len(weight.shape) < 2 or weight.rest[0] or weight.in_use[0]:
        return None
    rest, in_use, updated = (split[1:] for split in weight.splits)
    return replace(weight, shape=weight.shape[1:], rest=rest, in_use=in_use, updated=updated)


def _shapes(weight: Weight | None, entry: Collective, mesh: Mapping[str, int]) -> set[Shape]:
    """The shapes that a parameter can have on a device that gathers it over these axes, or reduces its gradient, which
    then is not split over them."""
    if weight is None:
        return set()
    if entry.operation == "all-gather":
        return shard_shapes(weight, set(entry.axes), mesh)
    reduced = set(entry.axes)
    splits = ((split, {axis for axes in split for axis in axes}) for split in weight.splits)
    choices = ((split, {*less, *(reduced & axes)}) for split, axes in splits for less in subsets(axes - reduced))
    return {key(weight.local(split, mesh, less)) for split, less in choices} - {()}
