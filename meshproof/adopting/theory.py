"""What layouts imply of every tensor that moves: the rules of COM-2 and COM-4, leaf by leaf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from meshproof.adopting.seeing import Leaf
from meshproof.adopting.traffic import Seen, Shape, Weight, gradient_shapes, key, shard_shapes

REDUCTIONS = ("all-reduce", "reduce-scatter")


@dataclass(frozen=True)
class Theory:
    """What the layouts imply: parameters with their layouts, and the mesh axes that split batches and gradients. The
    gradient of a ``frozen`` one is not reduced, for nobody needs it."""

    mesh: dict[str, int]
    weights: list[Weight]
    batch_axes: set[str]
    gradients: dict[str, Leaf]
    frozen: frozenset[str] = frozenset()

    def reduced(self, weight: Weight) -> set[str]:
        """The axes over which its gradient is reduced: those of the batch that do not split it in use."""
        own = {axis for axes in weight.in_use for axis in axes}
        return set() if weight.path in self.frozen else self.batch_axes - own

    def scattered(self, weight: Weight) -> set[str]:
        """Those of them that split the gradient."""
        gradient = self.gradients.get(weight.path)
        return self.reduced(weight) & gradient.axes if gradient else set()

    def alike(self, of: list[Weight]) -> list[Weight]:
        """The parameters whose gradients may have a shape of these gradients."""
        shapes = set().union(*(gradient_shapes(weight, self.mesh) for weight in of))
        return [other for other in self.weights if shapes & gradient_shapes(other, self.mesh)]

    def not_scattered(self, of: list[Weight], axis: str, own: list[Seen]) -> int:
        """How many more of these gradients are all-reduced over an axis than it does not split."""
        whole = sum(axis in self.reduced(weight) - self.scattered(weight) for weight in self.alike(of))
        return sum(each.tensors for each in own if each.lane[0] == "all-reduce" and axis in each.lane[1]) - whole

    def left_whole(self, weight: Weight, seen: Seen, axis: str) -> bool:
        """Whether a gradient that is scattered over some axes is reduced whole over another."""
        scattered = self.scattered(weight)
        whole = key(weight.local(weight.in_use, self.mesh))
        return bool(scattered) and axis in seen.lane[1] and not scattered & set(seen.lane[1]) and seen.shape == whole

    def classes(self) -> Iterator[tuple[Shape, list[Weight]]]:
        """Parameters of one shape in use, which a program's text cannot tell apart."""
        found: dict[tuple[Shape, frozenset[str]], list[Weight]] = {}
        for weight in self.weights:
            shape = key(weight.local(weight.in_use, self.mesh))
            found.setdefault((shape, frozenset(self.reduced(weight))), []).append(weight)
        yield from ((shape, of) for (shape, _), of in found.items() if shape)

    def times(self, of: list[Weight], axis: str, seen: Iterable[Seen]) -> Fraction:
        """How often the gradients of these parameters are reduced over an axis. A shard of another one may have their
        shape, and is then counted with them, whatever it was reduced as."""
        alike, shapes = of, set[Shape]()
        while len(found := set().union(*(gradient_shapes(weight, self.mesh) for weight in alike))) > len(shapes):
            shapes = found
            alike = [other for other in self.weights if shapes & gradient_shapes(other, self.mesh)]
        expected = sum(axis in self.reduced(weight) for weight in alike)
        tensors = sum(
            each.tensors
            for each in seen
            if each.lane[2] == "gradients" and each.lane[0] in REDUCTIONS and axis in each.lane[1]
            if each.shape in shapes
        )
        return Fraction(tensors, expected or 1)

    def gathers(self, of: list[Weight], axis: str, seen: Iterable[Seen]) -> tuple[int, int]:
        """How often shards of these parameters are gathered over an axis: seen, and expected. Where that is right of
        the shards at rest, no other of the same shape is asked."""
        lanes = [each for each in seen if each.lane[2] == "parameters" and axis in each.lane[1]]
        for at_rest in (True, False):
            shapes = {shape for weight in of for shape in shard_shapes(weight, {axis}, self.mesh, at_rest)}
            alike = [other for other in self.weights if shapes & shard_shapes(other, {axis}, self.mesh, at_rest)]
            expected = sum(axis in gathered_over(weight) for weight in alike)
            count = sum(each.tensors for each in lanes if each.shape in shapes)
            if expected <= count <= 2 * expected:
                break
        return count, expected

    def in_theory(self, weight: Weight) -> Iterator[Seen]:
        """What one parameter and its gradient must move."""
        local = weight.local(weight.in_use, self.mesh)
        shape, size = key(local), weight.itemsize * prod(local)
        over, scattered = self.reduced(weight), self.scattered(weight)
        if scattered:
            yield Seen(("reduce-scatter", self.ordered(scattered), "gradients"), shape, size, 1)
            size //= prod(self.mesh[axis] for axis in scattered)
        if left := over - scattered:
            yield Seen(("all-reduce", self.ordered(left), "gradients"), shape, size, 1)

    def ordered(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes in the mesh's order."""
        return tuple(axis for axis in self.mesh if axis in set(axes))


def gathered_over(weight: Weight) -> set[str]:
    """The axes over which a parameter is gathered: before its use, or after its update in shards."""
    rest, in_use, updated = ({axis for axes in split for axis in axes} for split in weight.splits)
    return (rest | updated) - in_use


def scalars(theory: Theory, seen: Iterable[Seen], forward: Iterable[Seen] | None) -> list[Seen]:
    """What a step moves, where scalars beyond those of the forward pass are gradients of parameters of one element.

    Without a forward pass the loss is the one scalar that is none.
    """
    owed = Counter(
        theory.ordered(theory.reduced(weight))
        for weight in theory.weights
        if not key(weight.local(weight.in_use, theory.mesh))
    )
    seen, found = list(seen), list[Seen]()
    for each in seen:
        operation, axes, what = each.lane
        if (operation, what, each.shape) == ("all-reduce", "metrics", ()):
            moved, kept = (
                sum(other.tensors for other in of if (other.lane, other.shape) == (each.lane, ()))
                for of in (seen, [replace(each, tensors=1)] if forward is None else forward)
            )
            owed[axes] = min(owed[axes], max(0, moved - kept))
            taken, size = min(owed[axes], each.tensors), each.bytes // each.tensors
            owed[axes] -= taken
            found.append(Seen((operation, axes, "gradients"), (), taken * size, taken))
            each = replace(each, bytes=each.bytes - taken * size, tensors=each.tensors - taken)
        found.append(each)
    return [each for each in found if each.tensors]
