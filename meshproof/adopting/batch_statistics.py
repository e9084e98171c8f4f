"""Statistics of a batch, as those of BatchNorm: they have the shape of a bias and are reduced where its gradient is.

What the auxiliary state averages can be reduced in the forward pass, at most twice its bytes (a variance has a mean of
its own), and again in each later pass, or in the step alone, as a codebook's counts; and what the optimizer averages
beside moments, as the preconditioners of Shampoo, once in a step: as much as COM-2 admits. What is more is a second
reduction of gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from meshproof.adopting.seeing import Leaf
from meshproof.adopting.theory import Theory
from meshproof.adopting.traffic import Lane, Seen, Shape, gradient_shapes


def running(part: Mapping[str, Leaf] | None, parameters: Mapping[str, Leaf]) -> list[int]:
    """The elements of every array of a part of the state that can be a statistic: no average of a parameter is one."""
    copies = [(f"/{path}", leaf.shape) for path, leaf in parameters.items()]
    return [
        prod(leaf.shape)
        for path, leaf in (part or {}).items()
        if leaf.shape and not any(f"/{path}".endswith(own) and leaf.shape == shape for own, shape in copies)
    ]


def in_forward(seen: list[Seen], sizes: list[int], batch_axes: set[str]) -> list[Seen]:
    """What moves in the forward pass, statistics with their name."""
    found = [each for each in seen if _may_be(each, sizes, batch_axes)]
    if sum(each.tensors * prod(each.shape) for each in found) > 2 * sum(sizes):
        return seen
    return [_named(each) if each in found else each for each in seen]


def in_step(
    theory: Theory, seen: list[Seen], forward: list[Seen] | None, sizes: list[int], passes: int, kept: list[int]
) -> list[Seen]:
    """What moves in a step, statistics apart from the gradients of their shape. ``kept``: those of the optimizer."""
    alike: dict[tuple[Lane, Shape], list[Seen]] = {}
    for each in seen:
        alike.setdefault((each.lane, each.shape), []).append(each)
    found = list[Seen]()
    for (lane, shape), of in alike.items():
        whole = Seen(lane, shape, sum(each.bytes for each in of), sum(each.tensors for each in of))
        gradients = _gradients(theory, shape) if lane[2] == "gradients" else 0
        more = whole.tensors - gradients
        allowed = 0
        if _may_be(whole, sizes, theory.batch_axes):
            own = lane[2] != "gradients" and 2 * sum(prod(shape) in (size, 2 * size) for size in sizes)
            allowed = passes * _once(whole, forward, sizes) or own
        allowed += kept.count(prod(shape)) if _may_be(whole, kept, theory.batch_axes) else 0
        if 0 < more <= allowed:
            size = whole.bytes // whole.tensors
            found += [replace(whole, bytes=size * gradients, tensors=gradients)] if gradients else []
            found.append(_named(replace(whole, bytes=size * more, tensors=more)))
        else:
            found += of
    return found


def _once(each: Seen, forward: list[Seen] | None, sizes: list[int]) -> int:
    """How many tensors of this shape the forward pass reduces, at most where that is not seen."""
    if forward is None:
        return 2 * sum(sizes) // prod(each.shape)
    return sum(own.tensors for own in forward if own.lane[2] == "statistics" and own.shape == each.shape)


def _gradients(theory: Theory, shape: Shape) -> int:
    """How many gradients of this shape must be reduced."""
    return sum(
        bool(theory.reduced(weight)) for weight in theory.weights if shape in gradient_shapes(weight, theory.mesh)
    )


def _may_be(each: Seen, sizes: list[int], batch_axes: set[str]) -> bool:
    operation, axes, what = each.lane
    fits = bool(each.shape) and any(prod(each.shape) in (size, 2 * size) for size in sizes)
    return fits and operation == "all-reduce" and what != "parameters" and set(axes) <= batch_axes


def _named(each: Seen) -> Seen:
    return replace(each, lane=(*each.lane[:2], "statistics"))
