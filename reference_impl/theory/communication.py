"""What each strategy must move, in bytes per device and step, from shapes alone.

A page lists its budget symbolically (``all_gather("parameters", over="data")``); `price` turns a line into bytes
for one model, batch and mesh. S, the priced size, is the one of the ring formulas: a ring of n sends S(n−1)/n for
an all-gather or reduce-scatter and 2S(n−1)/n for an all-reduce (Scaling book, "Sharded matrices").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from meshproof.contract import Communication, leaves
from reference_impl.mapping import Axes, MeshAxes
from reference_impl.models import Model
from reference_impl.page import Line, Page
from reference_impl.theory.schedules import Schedule

FLOAT32 = SCALAR = 4


@dataclass(frozen=True)
class Traffic:
    """Prices the lines of a page, by its mappings, on one model, mesh and global batch size.

    ``reductions`` is how often a step reduces gradients and metrics: once for each microbatch, where it does so inside
    the loop. ``explicit`` says that collectives are written by hand.
    """

    model: Model
    page: Page
    mesh: dict[str, int]
    batch: int
    reductions: int = 1
    explicit: bool = False

    def price(self, lines: list[Line], backward: bool) -> tuple[Communication, ...]:
        """The lines in bytes, over axes larger than one; those that move nothing on this mesh are left out."""
        priced = (self.line(line, sum(self.sizes(line, lines, backward))) for line in lines)
        return tuple(line for line in priced if line.bytes and line.axes)

    def line(self, line: Line, size: int) -> Communication:
        """One line of so many bytes in float32, in the dtype that the page or else the model says."""
        dtype = line.dtype or (None if line.payload == "metrics" else self.model.moved_dtype)
        width = 2 if dtype == "bfloat16" else FLOAT32
        return Communication(line.operation, self.larger(line.over), line.payload, size * width // FLOAT32, dtype)

    def larger(self, axes: MeshAxes) -> MeshAxes:
        """The axes that have more than one device, in the mesh's order."""
        return tuple(axis for axis, size in self.mesh.items() if axis in axes and size > 1)

    def sizes(self, line: Line, lines: list[Line], backward: bool) -> Iterator[int]:
        """The S of everything that one line moves, per device and step."""
        if line.payload == "metrics":
            sum_and_count = 2 if "mask" in self.model.promises else 1
            yield sum_and_count * SCALAR * (self.reductions if backward else 1)
        elif line.payload == "statistics":
            yield self.statistics(backward)
        elif line.payload == "activations":
            yield from self.activations(line, backward)
        elif line.payload == "parameters":
            yield from self.gathered(line.over, backward)
        else:
            yield from self.reduced(line, [other.over for other in lines if other.payload == "gradients"])

    def statistics(self, backward: bool) -> int:
        """The mean and the mean square of each channel that a norm takes of a batch; backward, their gradients.

        By hand the two are reduced as one, and so are their gradients. To a compiler the gradient of a variance is the
        sum of which also that of the norm's scale is made: it has been reduced as a gradient.
        """
        forward = self.model.statistics * FLOAT32
        return forward + backward * forward // (1 if self.explicit else 2)

    def gathered(self, over: MeshAxes, backward: bool) -> Iterator[int]:
        """Parameters that rest split and are computed with whole; after the optimizer, those that it updates split."""
        for path, in_use, axes in self.parameters():
            compute, rest = self.page.compute.split(axes), self.page.parameters.split(axes)
            updated = self.page.optimizer.split(axes) if backward else ()
            if set(over) == {*rest, *updated} - {*compute}:
                yield in_use * (2 if backward and set(rest) - {*compute} and self.gathered_twice(path) else 1)

    def gathered_twice(self, path: str) -> bool:
        """Whether a step gathers this parameter a second time, to recompute its block in the backward pass.

        Not the parameter that is only added to the block's output: the backward pass needs no output, it has kept the
        next block's input.
        """
        block, _, name = path.partition("/")
        return self.rematerialises and block in self.model.segments and name != self.model.added_last

    @property
    def rematerialises(self) -> bool:
        """Whether the backward pass recomputes blocks."""
        return bool(self.model.promises.get("rematerialises"))

    def reduced(self, line: Line, ways: list[MeshAxes]) -> Iterator[int]:
        """Gradients: each is summed over the axes that split the examples, their length or the layers, and not it.

        It is scattered over those of them that split it at rest, and what remains is all-reduced over the others: over
        all at once where that is among the page's ``ways``, else over one after the other.
        """
        for _, in_use, axes in self.parameters():
            summed = {*self.page.compute.split(("batch", "length", "sequence", "layers"))} - {
                *self.page.compute.split(axes)
            }
            scattered = summed & {*self.page.gradients.split(axes)}
            kept = summed - scattered
            at_once = kept in map(set, ways)
            if line.operation == "reduce-scatter" and set(line.over) == scattered:
                yield in_use * self.reductions
            if line.operation == "all-reduce" and (set(line.over) == kept if at_once else kept.issuperset(line.over)):
                yield in_use // prod(self.mesh[axis] for axis in scattered) * self.reductions

    def parameters(self) -> Iterator[tuple[str, int, Axes]]:
        """Each parameter's path, its bytes in use on a device, and its logical axes."""
        logical = dict(leaves(self.model.axes))
        for path, shape in leaves(self.model.shapes):
            split = self.page.compute.split(logical[path])
            yield path, prod(shape) // prod(self.mesh[axis] for axis in split) * FLOAT32, logical[path]

    def activations(self, line: Line, backward: bool) -> Iterator[int]:
        """The row-parallel product that leaves a region forward, the gradient of what entered it backward.

        Each is one all-reduce; or one reduce-scatter, and then an all-gather stands at the other end. An all-to-all
        stands at both ends, forward and backward. A ring takes what would be gathered, or scattered, to every other
        device. A block that is recomputed moves again what it moves forward, but not what leaves its last region:
        that is the block's output, which the backward pass does not need.
        """
        rows = self.batch // prod(self.mesh[axis] for axis in self.page.compute.of("batch"))
        if self.page.compute.of("length") == line.over:
            yield self.for_attention(line, rows, backward)
            return
        if line.operation == "collective-permute":
            at_once = [replace(line, operation=operation) for operation in ("all-gather", "reduce-scatter")]
            devices = self.mesh[line.over[0]]
            yield sum(sum(self.activations(each, backward)) for each in at_once) * (devices - 1) // devices
            return
        for region in self.model.regions():
            if self.page.compute.of(region.axis) != line.over:
                continue
            if line.operation == "all-to-all":
                yield rows * (region.entered + region.left) * (1 + backward) * FLOAT32
            else:
                gathers = line.operation == "all-gather"
                first, second = (region.entered, region.left) if gathers else (region.left, region.entered)
                again = first * (backward and self.rematerialises and (gathers or region.inner))
                yield rows * (first + second * (backward and not region.known) + again) * FLOAT32

    def for_attention(self, line: Line, rows: int, backward: bool) -> int:
        """What a device with its own part of the sequence moves to attend to the whole.

        On a ring keys and values visit every other device; or tokens are traded for heads: queries, keys, values and
        attention's output, twice the keys and values. Backward their gradients move, and they again where a block is
        recomputed. Gathered keys and values are then gathered again; their gradients are reduce-scattered.
        """
        devices = self.mesh[line.over[0]]
        whole = rows * self.model.keys_and_values * FLOAT32
        again = backward and self.rematerialises
        if line.operation == "all-gather":
            return whole * (1 + again)
        if line.operation == "reduce-scatter":
            return whole * backward
        parts = 2 if line.operation == "all-to-all" else devices - 1
        return parts * whole // devices * (1 + backward + again)


@dataclass(frozen=True)
class PipelineTraffic(Traffic):
    """The same where a schedule moves the activations: in every tick, also from idle stages."""

    schedule: Schedule = field(kw_only=True)

    def activations(self, line: Line, backward: bool) -> Iterator[int]:
        """What the stages send in every tick; and what a stage that is itself split moves in it.

        V·M + S − 1 ticks go forward. A stage that is split goes back in as many: a backward recomputes its forward,
        and moves what that moves.
        """
        rows = self.batch // prod(self.mesh[axis] for axis in self.page.compute.of("batch"))
        examples = rows // self.schedule.microbatches
        forwards = self.schedule.chunks * self.schedule.microbatches + self.schedule.stages - 1
        for region in self.model.regions():
            if line.operation == "collective-permute":
                yield examples * region.left * (self.schedule.hops if backward else forwards) * FLOAT32
                return
            if self.page.compute.of(region.axis) == line.over:
                elements = region.left + (region.left + region.entered) * backward
                yield examples * elements * forwards * FLOAT32 // self.schedule.depths
