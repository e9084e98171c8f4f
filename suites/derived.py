"""The bytes that must move over every batch axis, derived from shapes and layouts alone. Declared budgets are checked
against this: a budget cannot vouch for itself.

A batch axis is a mesh axis that splits the examples or their tokens. A parameter counts with its bytes per device in
use, that is, in the layout in which it is computed with.

- It is all-gathered over the batch axes that shard it at rest, but not in use.
- Its gradient is reduced over all batch axes that do not shard it in use: where a device owns a part, as of the
  experts, it sees the tokens of all. Over those that shard it at rest the gradient is reduce-scattered; over the others
  (as between replicas, COM-7) only the resulting shard is reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, prod
from typing import NamedTuple

from meshproof.cases import Case
from meshproof.contract import ELEMENT_TYPES, HALVES, Communication, Operation, spec_axes
from meshproof.hlo import Collective
from meshproof.judging.judge import Judge
from meshproof.measures.layout import LeafLayout
from meshproof.measures.traffic import SCALARS, Traffic, compare_traffic, is_listed_as_sum, is_sum_of_shards
from meshproof.measures.verdicts import MOST, unequal
from meshproof.observing.observation import Observation

from .applicability import axes_of, brings_truth, data_axes, exchanges_tokens, rematerialises
from .hierarchical import gathered_again, left_in_shards, padding
from .raveled import gradient_layout, raveled

USES = 16
"""As often a vector may be used, and its gradient be reduced, where a compiler writes the collectives."""

REDUCTIONS: tuple[Operation, ...] = ("all-reduce", "reduce-scatter")


def halves(case: Case) -> set[str]:
    """Those that the contract computes in, keeps leaves in, or moves."""
    moved = (line.dtype for line in case.contract.step or ())
    dtypes = (case.contract.compute_dtype, *case.contract.dtypes.values(), *moved)
    return {ELEMENT_TYPES[dtype] for dtype in dtypes if dtype in HALVES}


def lanes_of(case: Case, seen: Iterable[Collective], budget: Iterable[Communication]) -> tuple[Traffic, ...]:
    """`compare_traffic`; what may move on either side of a cast counts as float32.

    XLA:CPU alone widens what its collectives move: elsewhere float32 is what the program sends. And where nobody wrote
    collectives by hand every reduce-scatter is the compiler's, also of releases whose programs do not tell.
    """
    if case.compiles_only:
        seen = [replace(entry, widened=0, derived=entry.derived or not case.contract.explicit) for entry in seen]
    return compare_traffic(seen, budget, halves(case))


class Moved(NamedTuple):
    """A parameter's bytes per device in use; the axes it is gathered over, and its gradient reduced or scattered over.

    ``scattered`` is a part of ``reduced``. One that stands for all, raveled, has no shape.
    """

    bytes: int
    gathered: set[str]
    reduced: set[str]
    scattered: set[str]
    shape: tuple[int, ...] | None = None

    @property
    def vector(self) -> bool:
        """Whether it has one dimension or none."""
        return self.shape is not None and len(self.shape) < 2


@dataclass(frozen=True)
class Theory:
    """What a case must move by its layouts, beside the ``collectives`` of its compiled step."""

    case: Case
    parameters: list[Moved]
    collectives: tuple[Collective, ...]

    def gathers(self) -> Iterator[str]:
        """A sentence for each axis over which parameters are not gathered once, or up to twice with recomputation.

        If an axis shards optimizer state and no parameter, as in ZeRO, COM-3 judges the gather.
        """
        most = 2 if rematerialises(self.case) else 1
        for axis in data_axes(self.case):
            pieces = [(one.bytes, one.gathered) for one in self.parameters if axis in one.gathered]
            in_shards = self.case.contract.optimizer_state is None or axis in axes_of(self.case, "optimizer_state")
            if pieces or not in_shards:
                yield from self.mismatch("parameters", "gathered", axis, ("all-gather",), pieces, most=most)
        whole = [(one.bytes, one.gathered) for one in self.parameters]
        yield from self.detour("parameters", "gathered", "all-gather", whole, most)

    def scatters(self) -> Iterator[str]:
        """A sentence for each axis over which gradients are not reduce-scattered once."""
        for axis in data_axes(self.case):
            pieces = [(one.bytes, one.scattered) for one in self.parameters if axis in one.scattered]
            hint = "" if pieces else "; of gradients that a step scatters, declare the shards (ZeRO-2), not the whole"
            again = gathered_again(self.case.contract.step or ()).items()
            more = sum(size for axes, size in again if axis in axes)
            for told in self.mismatch("gradients", "scattered", axis, ("reduce-scatter",), pieces, more=more):
                yield f"{told}{hint}"
        whole = [(one.bytes, one.scattered) for one in self.parameters]
        yield from self.detour("gradients", "scattered", "reduce-scatter", whole)

    def reductions(self) -> Iterator[str]:
        """A sentence for each axis over which gradients are not reduced once: whole, or the shard left by a scatter."""
        for axis in data_axes(self.case):
            pieces = [
                (one.bytes, one.scattered)
                if axis in one.scattered
                else (one.bytes // prod(self.case.mesh[other] for other in one.scattered), {axis})
                for one in self.parameters
                if axis in one.reduced
            ]
            missing, little = self.of_a_compiler(axis)
            padded = padding(self.case.contract.step or (), self.case.mesh, axis) * len(self.parameters)
            bounds = missing + self.put_together(axis), padded + (USES - 1) * little
            yield from self.mismatch("gradients", "reduced", axis, REDUCTIONS, pieces, *bounds)

    def of_a_compiler(self, axis: str) -> tuple[int, int]:
        """The bytes of gradients that may be missing over an axis where a compiler writes the collectives, and of those
        that it may reduce in each use. Of a trainer that brings a truth it is known whether one does so.

        Vectors and small parameters are both: a loss multiplies what is summed by one, as by a task's weight, or a gain
        a normalised kernel, whose gradient is summed and has the gain's in it. A kernel of another one's shape may be
        missing: both gradients are made of one sum, as those of the mean and the deviation of a weight."""
        if self.case.contract.explicit or brings_truth(self.case):
            return 0, 0
        whole = [one for one in self.parameters if axis in one.reduced]
        kernels = [one for one in whole if one.bytes > SCALARS and not one.vector]
        small = sum(one.bytes for one in whole if one.bytes <= SCALARS and not one.vector)
        little = min(small, SCALARS) + sum(one.bytes for one in whole if one.vector)
        return little + sum(one.bytes for number, one in enumerate(kernels) if one in kernels[:number]), little

    def put_together(self, axis: str) -> int:
        """The bytes that gradients lack over an axis because only a shard is reduced there, and the shards are put
        together over other axes. By a gather, in a hierarchical all-reduce. Or by a sum: so each device reads its part
        of a table of positions. Over axes that split tokens the budget alone tells a sum of shards from one of whole
        tables, by its bytes."""
        step, mesh = self.case.contract.step or (), self.case.mesh
        lines = [line for line in step if (line.operation, line.payload) == ("all-reduce", "gradients")]
        if absent := left_in_shards(step, mesh, axis):
            return absent
        summed = {line.axes for line in lines if axis not in line.axes}
        alone = sum(line.bytes for line in lines if line.axes == (axis,))
        written_as_gathers = [
            lacking(entry.bytes or 0, entry.axes, mesh)
            for entry in self.collectives
            if is_sum_of_shards(entry) and entry.axes in summed and is_listed_as_sum(entry, step)
        ]
        if written_as_gathers or not alone:
            return sum(map(int, written_as_gathers))
        tokens = {name for spec in (self.case.contract.batch or {}).values() for name in spec_axes(spec[1:])}
        whole = {axes: sum(line.bytes for line in lines if line.axes == axes) for axes in summed if tokens >= {*axes}}
        as_much = (size for axes, size in whole.items() if size == alone * prod(mesh[name] for name in axes))
        return next((size - alone for size in as_much), 0)

    def mismatch(
        self,
        payload: str,
        done: str,
        axis: str,
        operations: tuple[Operation, ...],
        pieces: list[tuple[int, set[str]]],
        absent: int = 0,
        more: int = 0,
        most: int = 1,
    ) -> Iterator[str]:
        """A sentence if these pieces (bytes, axes) do not move over ``axis`` once, or up to ``most`` times; so many
        bytes may be ``absent``, or as many ``more`` move.

        If the budget has a line for all axes of a piece, it moves over all at once. Else it moves over one axis after
        the other, in an order that the compiler chooses: over this axis whole, or as the shard left by the others.
        """
        own = [
            line
            for line in self.case.contract.step or ()
            if line.payload == payload and line.operation in operations and axis in line.axes
        ]
        at_once, mesh = [set(line.axes) for line in own if line.operation != "all-reduce"], self.case.mesh
        whole = sum(size for size, _ in pieces)
        least = sum(
            size if axes in at_once else size // prod(mesh[other] for other in axes - {axis}) for size, axes in pieces
        )
        seen = bytes_of(self.case, own, self.collectives)
        yield from self.judged(f"{payload} {done} over {axis}", seen, (least - absent, whole * most + more), most, own)

    def detour(
        self, payload: str, done: str, operation: Operation, pieces: list[tuple[int, set[str]]], most: int = 1
    ) -> Iterator[str]:
        """A sentence if a device receives more or less of these pieces (bytes, axes) than it lacks.

        In whatever order the axes are taken, of a piece of S bytes over n devices a device receives S·(n − 1)/n. This
        is sharper than the range that `mismatch` admits for each axis.
        """
        axes = {axis for _, several in pieces if len(several) > 1 for axis in several}
        own = [
            line
            for line in self.case.contract.step or ()
            if line.payload == payload and line.operation == operation and axes.intersection(line.axes)
        ]
        lanes = {line.axes: [other for other in own if other.axes == line.axes] for line in own}
        mesh = self.case.mesh
        seen = sum(lacking(bytes_of(self.case, of, self.collectives), over, mesh) for over, of in lanes.items())
        once = sum(lacking(size, over, mesh) for size, over in pieces if axes & over)
        received = f"{payload} that a device receives, {done} over {'×'.join(sorted(axes))}"
        yield from self.judged(received, seen, (once, once * most), most, own)

    def judged(
        self, what: str, seen: float, bounds: tuple[float, float], most: int, own: list[Communication]
    ) -> Iterator[str]:
        """A sentence if the bytes seen are not within ``bounds``, nor within that many per microbatch."""
        contract = self.case.contract
        (low, high), parts = (bound * contract.evaluations for bound in bounds), contract.microbatches
        if any(low * times <= seen <= high * times for times in (1, parts)):
            return
        amount = unequal(seen, low, "bytes")
        if low < high:
            saw = "an unknown number" if seen == inf else f"{seen:,}"
            amount = f"expected {low:,} to {high:,} bytes, saw {saw}"
        source = f"theory, from shapes and layouts alone: {'once' if most == 1 else 'once or twice'} per step"
        source += f", for each of {contract.evaluations} evaluations" if contract.evaluations > 1 else ""
        if what.startswith("gradients reduced") and low and seen in (low * n for n in range(2, MOST + 1)):
            source += (
                f" (or, in a step that computes them {seen / low:g} times on purpose, as often as `evaluations` says)"
            )
        source += ", or per microbatch" if parts > 1 else ""
        if what.startswith("gradients reduced") and seen < low:
            source += "; of parameters that the loss does not use, `gradients` in the contract has no pattern"
        source += f", {' and '.join(sorted(halves(self.case)))} counted as f32" if halves(self.case) else ""
        yield f"{what}: {amount}; {source}; budget: {'; '.join(map(str, own)) or 'no such line'}"


def theory(case: Case, observation: Observation, judge: Judge) -> Theory:
    """The theory of a case; ends the test as not supported if its contract leaves a layout open.

    In use, a parameter is not sharded over batch axes, unless ``computed`` says otherwise. If activations move over a
    batch axis, as tokens on their way to experts, it may shard a parameter in use too: then ``computed`` is needed.
    """
    judge.promised(case.contract.parameters, "layout of the parameters")
    judge.promised(case.contract.gradients, "layout of the gradients")
    judge.promised(case.contract.batch, "layout of the batch")
    layouts = observation.start.layouts
    leaves = judge.see(layouts.parameters) if data_axes(case) else ()
    if exchanges_tokens(case):
        judge.promised(case.contract.computed, "layout in which parameters are computed with (`computed`)")
    collectives = judge.see(observation.programs.step.collectives)
    vector = raveled(case, leaves, layouts.optimizer_state if isinstance(layouts.optimizer_state, tuple) else ())
    if vector:
        return Theory(case, [moved_at_once(case, leaves, vector)], collectives)
    try:
        return Theory(case, [moved(case, leaf) for leaf in leaves], collectives)
    except LookupError as undeclared:
        judge.fail([str(undeclared.args[0])])


def moved_at_once(case: Case, parameters: Iterable[LeafLayout], vector: LeafLayout) -> Moved:
    """How gradients move that are raveled to such a vector. Whether they are scattered no layout tells: the budget."""
    itemsize = max(4 if leaf.dtype in HALVES else leaf.itemsize for leaf in parameters)
    axes, lines = set(spec_axes(vector.declared or ())), case.contract.step or ()
    scatters = any((line.operation, line.payload) == ("reduce-scatter", "gradients") for line in lines)
    return Moved(itemsize * vector.shape[0], set(), {*data_axes(case)}, axes if scatters else set())


def moved(case: Case, leaf: LeafLayout) -> Moved:
    """How a parameter and its gradient move. A parameter whose gradient has no layout is frozen.

    Raises ``LookupError`` if no pattern of ``computed`` matches it.
    """
    contract, axes, at_rest = case.contract, {*data_axes(case)}, set(spec_axes(leaf.declared or ()))
    in_use = at_rest - axes if contract.computed is None else set(spec_axes(contract.spec("computed", leaf.path)))
    itemsize = 4 if leaf.dtype in HALVES else leaf.itemsize
    size = itemsize * prod(leaf.shape) // prod(case.mesh[axis] for axis in in_use)
    gradient = gradient_layout(case, leaf)
    reduced = set() if gradient is None else axes - in_use
    scattered = reduced & set(spec_axes(gradient or ()))
    return Moved(size, (at_rest & axes) - in_use, reduced, scattered, leaf.shape)


def lacking(size: float, axes: Iterable[str], mesh: Mapping[str, int]) -> float:
    """The bytes of a piece that a device lacks if it holds one of the parts that ``axes`` split it into."""
    return size if size == inf else size - size // prod(mesh[axis] for axis in axes)


def bytes_of(case: Case, lines: list[Communication], collectives: Iterable[Collective]) -> float:
    """Bytes that ``collectives`` move in the lanes of these lines, less what other lines of the budget list there.

    Bytes in `halves` count as float32: the contract leaves open on which side of a collective a cast stands, but not
    how many elements move. Infinite if a count is unknown.
    """
    budget, lanes = case.contract.step or (), {(line.operation, line.axes) for line in lines}
    entries = [e for lane in lanes_of(case, collectives, budget) if lane.lane in lanes for e in lane.entries]
    narrow = halves(case)
    seen = sum(inf if entry.bytes is None else entry.bytes * (2 if entry.dtype in narrow else 1) for entry in entries)
    others = (line for line in budget if (line.operation, line.axes) in lanes and line not in lines)
    return seen - sum(line.wide_bytes for line in others)
