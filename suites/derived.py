"""What must move over the axes that split the examples or their tokens, from shapes and layouts: no budget is evidence
for itself.

A parameter moves in its bytes per device as it is computed with. It is gathered over the axes that split it at rest and
not in use. Its gradient is reduced over all but those that split it in use, for a device that has its own part of a
parameter, as of the experts, sees everybody's tokens: scattered over those that split it at rest, and over the others
what is left of it, as COM-7 has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf, prod
from typing import NamedTuple

from meshproof.cases import Case
from meshproof.contract import Communication, Operation
from meshproof.hlo import Collective
from meshproof.judging.judge import Judge
from meshproof.measures.layout import LeafLayout
from meshproof.measures.traffic import compare_traffic
from meshproof.measures.verdicts import compared
from meshproof.observing.observation import Observation

from .applicability import axes_of, data_axes, exchanges_tokens, mesh_axes, mixed, rematerialises

REDUCTIONS: tuple[Operation, ...] = ("all-reduce", "reduce-scatter")
HALVES = {"bfloat16": "bf16", "float16": "f16"}
"""Dtypes half as wide as float32: as a contract names them, and as a compiled program does."""


class Moved(NamedTuple):
    """A parameter's bytes in use, the axes that it is gathered over, and those that its gradient goes over."""

    bytes: int
    gathered: set[str]
    reduced: set[str]
    scattered: set[str]


@dataclass(frozen=True)
class Theory:
    """What a case must move by its layouts, beside what its compiled step is seen to move."""

    case: Case
    parameters: list[Moved]
    collectives: tuple[Collective, ...]

    def gathers(self) -> Iterator[str]:
        """Axes over which parameters are not gathered once, nor once more where the backward pass computes anew.

        Where none rests split, but optimizer state does, as in ZeRO, COM-3 judges what is gathered.
        """
        most = 2 if rematerialises(self.case) else 1
        for axis in data_axes(self.case):
            pieces = [(one.bytes, one.gathered) for one in self.parameters if axis in one.gathered]
            in_shards = self.case.contract.optimizer_state is None or axis in axes_of(self.case, "optimizer_state")
            if pieces or not in_shards:
                yield from self.mismatch("parameters", "gathered", axis, ("all-gather",), pieces, most)
        whole = [(one.bytes, one.gathered) for one in self.parameters]
        yield from self.detour("parameters", "gathered", "all-gather", whole, most)

    def scatters(self) -> Iterator[str]:
        """Axes over which gradients are not scattered once."""
        for axis in data_axes(self.case):
            pieces = [(one.bytes, one.scattered) for one in self.parameters if axis in one.scattered]
            yield from self.mismatch("gradients", "scattered", axis, ("reduce-scatter",), pieces)
        whole = [(one.bytes, one.scattered) for one in self.parameters]
        yield from self.detour("gradients", "scattered", "reduce-scatter", whole)

    def reductions(self) -> Iterator[str]:
        """Axes over which gradients are not reduced once, whole or, where others have scattered them, in shards."""
        for axis in data_axes(self.case):
            pieces = [
                (one.bytes, one.scattered)
                if axis in one.scattered
                else (one.bytes // prod(self.case.mesh[other] for other in one.scattered), {axis})
                for one in self.parameters
                if axis in one.reduced
            ]
            yield from self.mismatch("gradients", "reduced", axis, REDUCTIONS, pieces)

    def mismatch(
        self,
        payload: str,
        done: str,
        axis: str,
        operations: tuple[Operation, ...],
        pieces: list[tuple[int, set[str]]],
        most: int = 1,
    ) -> Iterator[str]:
        """The sentence that says that these pieces do not move once, to so many times, in a step or in each microbatch.

        A piece moves over all its axes at once where the budget has such a line; else over one after the other, and
        over this one whole or in the shards that the others make of it.
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
        yield from self.judged(f"{payload} {done} over {axis}", seen, (least, whole * most), most, own)

    def detour(
        self, payload: str, done: str, operation: Operation, pieces: list[tuple[int, set[str]]], most: int = 1
    ) -> Iterator[str]:
        """The sentence that says that a device receives more or less of these pieces than it lacks.

        Over several axes one after the other it receives as much as over all at once, in whatever order the compiler
        takes them: of a piece of S bytes over n devices S·(n − 1)/n. Each axis alone says less.
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
        received = f"{payload} {done} over {'×'.join(sorted(axes))}, and received"
        yield from self.judged(received, seen, (once, once * most), most, own)

    def judged(
        self, what: str, seen: float, allowed: tuple[float, float], most: int, own: list[Communication]
    ) -> Iterator[str]:
        """The sentence that says that this is neither seen once, to so many times, in a step nor in each microbatch."""
        parts = self.case.contract.microbatches
        if not any(allowed[0] * times <= seen <= allowed[1] * times for times in (1, parts)):
            source = f"theory: by shapes and layouts {'once' if most == 1 else 'once or twice'}"
            source += f", or so in each of {parts} microbatches" if parts > 1 else ""
            source += f", {self.case.contract.compute_dtype} counted as float32" if mixed(self.case) else ""
            source += "; that the budget agrees with the step proves nothing"
            budget = "; ".join(map(str, own)) or f"no line for {what}"
            yield f"{what}: {compared(seen, allowed[1], 'bytes')}; {source}; budget: {budget}"


def theory(case: Case, observation: Observation, judge: Judge) -> Theory:
    """That of a case; ends the test as not supported where its contract does not say how all leaves lie.

    Parameters are computed with whole along the axes that split examples or tokens, unless ``computed`` says otherwise.
    Where activations move over such an axis, as tokens do that travel to their experts, it may split a parameter in use
    as well: a contract that does not say then ends the test.
    """
    judge.promised(case.contract.parameters, "layout of the parameters")
    judge.promised(case.contract.gradients, "layout of the gradients")
    judge.promised(case.contract.batch, "layout of the batch")
    leaves = judge.see(judge.see(observation.before).parameters) if data_axes(case) else ()
    if exchanges_tokens(case):
        judge.promised(case.contract.computed, "layout in which parameters are computed with (`computed`)")
    collectives = judge.see(judge.see(observation.step).collectives)
    try:
        return Theory(case, [moved(case, leaf) for leaf in leaves], collectives)
    except LookupError as undeclared:
        judge.fail([str(undeclared.args[0])])


def moved(case: Case, leaf: LeafLayout) -> Moved:
    """Where a parameter and its gradient go. One whose gradient has no layout is frozen, and has none.

    Raises ``LookupError`` where ``computed`` has no pattern that matches it.
    """
    contract, axes, at_rest = case.contract, {*data_axes(case)}, {*mesh_axes(leaf.declared or ())}
    in_use = at_rest - axes if contract.computed is None else {*mesh_axes(contract.spec("computed", leaf.path))}
    size = leaf.itemsize * prod(leaf.shape) // prod(case.mesh[axis] for axis in in_use)
    matching = (spec for pattern, spec in (contract.gradients or {}).items() if fnmatchcase(leaf.path, pattern))
    gradient = next(matching, None)
    reduced = set() if gradient is None else axes - in_use
    return Moved(size, (at_rest & axes) - in_use, reduced, reduced & {*mesh_axes(gradient or ())})


def lacking(size: float, axes: Iterable[str], mesh: Mapping[str, int]) -> float:
    """What a device lacks of a piece that it has one part of."""
    return size if size == inf else size - size // prod(mesh[axis] for axis in axes)


def bytes_of(case: Case, lines: list[Communication], collectives: Iterable[Collective]) -> float:
    """Bytes that a step is seen to move in the lanes of these lines of its budget, less what else it lists there.

    What moves in ``compute_dtype`` counts as if it moved in float32: the contract leaves open on which side of a
    collective a cast stands, but not how many elements move. Infinite where a count is unknown.
    """
    budget, lanes = case.contract.step or (), {(line.operation, line.axes) for line in lines}
    entries = [e for traffic in compare_traffic(collectives, budget) if traffic.lane in lanes for e in traffic.entries]
    narrow = HALVES.get(case.contract.compute_dtype)
    seen = sum(inf if entry.bytes is None else entry.bytes * (2 if entry.dtype == narrow else 1) for entry in entries)
    return seen - sum(line.bytes for line in budget if (line.operation, line.axes) in lanes and line not in lines)
