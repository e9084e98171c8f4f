"""The census: which logical collectives a compiled program runs per step, over which mesh axes, moving how much.

Counted are executions, not instructions: a collective in a loop counts once per iteration, nested loops multiply, and a
body that is reached twice counts twice. The condition of a loop runs once more than its body. Branches of a conditional
that communicate alike count once; where they differ, what they communicate depends on the data, and its counts are None
(*unknown*), as they are in a loop whose trip count the text does not tell.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any, NamedTuple

from meshproof.hlo.async_fusions import AsyncFusions
from meshproof.hlo.collectives import BASES, CONTINUATIONS, Written, check_continuation, check_silent, read_collective
from meshproof.hlo.errors import HloError, refuse_depth
from meshproof.hlo.loops import trip_count
from meshproof.hlo.module import CALLERS, Computation, Instruction, Module
from meshproof.hlo.order import check_order
from meshproof.hlo.parser import parse
from meshproof.hlo.realisations import FUSED_SCATTER, Meaning, Realisations
from meshproof.hlo.tensors import Tensor, carried
from meshproof.hlo.wire import devices_of, parts_sent


@dataclass(frozen=True)
class Collective:
    """One kind of communication of a step, summed over all instructions of that kind.

    `operation` is logical ("reduce-scatter"), `realized_as` is what the compiler wrote ("all-reduce + dynamic-slice").
    `axes` are mesh axes in mesh order, or parts of them, as `data:(1)2`. `executions`, `tensors` and `bytes` are per
    step, and None where the text does not tell how often a loop runs or which branch is taken. `bytes` are per device,
    S of the ring formulas: the operand of all-reduce, reduce-scatter, all-to-all, collective-permute and
    collective-broadcast, the result of all-gather. They are None for ragged-all-to-all, whose sizes are data. `dtype`
    is the operand's. `phase` is "forward", "backward", "synchronize_gradients", "optimizer" or "other", from the named
    scopes of the program.

    `widened` is the part of `bytes` in float32 that was a half-wide float just before: XLA:CPU widens those for every
    collective. `wire_bytes` are what a device sends for what the compiler wrote, on a ring and rounded up
    (`meshproof.hlo.wire`); None where `bytes` are. `derived` is a reduce-scatter that nobody wrote: XLA made it of an
    all-reduce that its partitioner put there, as the text tells from jax 0.12 on. `constant`: what moves is a function
    of positions and constants alone, which each device could compute; TPU so gathers the counters of random bits.
    """

    operation: str
    axes: tuple[str, ...]
    executions: int | None
    tensors: int | None
    bytes: int | None
    dtype: str
    realized_as: str
    phase: str
    widened: int = field(default=0, compare=False)
    wire_bytes: int | None = field(default=None, compare=False)
    derived: bool = field(default=False, compare=False)
    constant: bool = field(default=False, compare=False)

    def recorded(self) -> dict[str, Any]:
        """Its fields by name, without those that only a judge of the compiled program asks for."""
        return {name: value for name, value in asdict(self).items() if name not in ("widened", "derived", "constant")}


class Kind(NamedTuple):
    """What entries of the census are summed by."""

    operation: str
    axes: tuple[str, ...]
    dtype: str
    realized_as: str
    phase: str
    derived: bool
    constant: bool
    dimensions: tuple[int, ...]


class Amount(NamedTuple):
    """How much of a kind; None is unknown. What is ``sent`` counts parts of bytes, as many as a group has devices."""

    executions: int | None
    tensors: int | None
    bytes: int | None
    widened: int | None = 0
    sent: int | None = 0

    def plus(self, other: "Amount") -> "Amount":
        """The sum; unknown if either is."""
        return Amount(*(None if a is None or b is None else a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: int | None) -> "Amount":
        """The product; unknown if either is."""
        return Amount(*(None if a is None or factor is None else a * factor for a in self))


Profile = dict[Kind, Amount]
_FUSIONS = frozenset({"fusion", "fusion-start"})
_WRAPPERS = _FUSIONS | {"async-start"}
_PARTITIONED = 'is_spmd_generated="true"'


def census(text: str, mesh: Mapping[str, int]) -> tuple[Collective, ...]:
    """All communication of one step of a compiled program.

    `text` is what `compiled.as_text()` prints; `mesh` maps axis names to sizes in the order of `mesh.devices`, so that
    ids in the text are positions in `mesh.devices.flat`. Entries come in the order of their fields. Raises `HloError`,
    with line and column, for anything that cannot be accounted for.
    """
    return tuple(collective for collective, _ in _take(text, mesh, by_shape=False))


def census_by_shape(text: str, mesh: Mapping[str, int]) -> tuple[tuple[Collective, tuple[int, ...]], ...]:
    """The same with an entry for each shape of tensors, and that shape: an operand's dimensions on one device.

    An instruction that carries tensors of several shapes is an execution of each of these entries.
    """
    return tuple(_take(text, mesh, by_shape=True))


def _take(text: str, mesh: Mapping[str, int], by_shape: bool) -> Iterator[tuple[Collective, tuple[int, ...]]]:
    _check_mesh(mesh)
    module = parse(text)
    _check_devices(module, mesh)
    with refuse_depth():
        profile = _Profiler(module, mesh, by_shape).entry()
    for kind, amount in sorted(profile.items(), key=lambda item: item[0]):
        if amount.executions != 0:
            wire_bytes = None if amount.sent is None else -(-amount.sent // devices_of(kind.axes, mesh))
            names = kind.dtype, kind.realized_as, kind.phase
            yield (
                Collective(
                    kind.operation,
                    kind.axes,
                    *amount[:3],
                    *names,
                    amount.widened or 0,
                    wire_bytes,
                    kind.derived,
                    kind.constant,
                ),
                kind.dimensions,
            )


def _check_mesh(mesh: Mapping[str, int]) -> None:
    for name, size in mesh.items():
        if size < 1:
            raise ValueError(f"mesh axis {name!r} has size {size}; expected 1 or more")


def _check_devices(module: Module, mesh: Mapping[str, int]) -> None:
    if module.replica_count != 1:
        problem = f"replica_count={module.replica_count}: expected one replica (jit or shard_map, not the old pmap)"
        raise HloError(f"{problem}, so that ids are positions in the mesh", text=f"HloModule {module.name}")
    devices = prod(mesh.values())
    if module.num_partitions != devices:
        shape = ", ".join(f"{name}={size}" for name, size in mesh.items())
        problem = f"the program is compiled for {module.num_partitions} devices (num_partitions) but the mesh"
        raise HloError(f"{problem} {shape} has {devices}; give the mesh it was compiled for", text=module.name)


class _Profiler:
    """Sums the communication of each computation, bodies before their callers."""

    def __init__(self, module: Module, mesh: Mapping[str, int], by_shape: bool) -> None:
        self._module = module
        self._mesh = mesh
        self._by_shape = by_shape
        self._realisations = Realisations(prod(mesh.values()))
        self._async_fusions = AsyncFusions(module)
        self._profiles: dict[Computation, Profile] = {}

    def entry(self) -> Profile:
        for instruction in self._module.instructions:
            _refuse_unknown(instruction)
        check_order(self._module)
        profile = self._profile(self._module.entry)
        for instruction in self._module.instructions:
            if instruction.opcode in BASES and instruction.computation not in self._profiles:
                self._refuse_unreached(instruction)
        return profile

    def _refuse_unreached(self, instruction: Instruction) -> None:
        if read_collective(instruction, self._mesh):
            problem = f"a collective in computation {instruction.computation.name}, which nothing known calls"
            raise instruction.refuse(f"{problem}: it cannot be counted. Report it with this line")

    def _profile(self, computation: Computation) -> Profile:
        if computation not in self._profiles:
            total: Profile = {}
            for instruction in computation.instructions:
                if instruction.opcode in CALLERS:
                    _add(total, self._called(instruction))
                elif instruction.opcode in BASES:
                    _add(total, self._moved(instruction))
            self._profiles[computation] = total
        return self._profiles[computation]

    def _called(self, instruction: Instruction) -> Profile:
        profiles = {
            role: [self._profile(callee) for callee in callees] for role, callees in instruction.callees.items()
        }
        if not any(profile for found in profiles.values() for profile in found):
            return {}
        if instruction.opcode == "while":
            trips = trip_count(instruction)
            total = _scaled(profiles["body"][0], trips)
            _add(total, _scaled(profiles["condition"][0], None if trips is None else trips + 1))
            return total
        if instruction.opcode == "fusion" and self._async_fusions.continues(instruction):
            return {}
        return _either([profile for found in profiles.values() for profile in found])

    def _moved(self, instruction: Instruction) -> Profile:
        written = read_collective(instruction, self._mesh)
        if written is None:
            return {}
        callers = instruction.computation.callers
        wrappers = {caller.opcode for caller in callers}
        wrapper = callers[0] if len(callers) == 1 and wrappers <= _WRAPPERS else None
        tensors = carried(written, wrapper)
        meanings = self._realisations.classify(written, tensors, fused=bool(wrappers & _FUSIONS))
        prefix = "async-start " if "async-start" in wrappers else ""
        return _by_kind(
            written, self._mesh, tensors, meanings, _is_partitioned(instruction, wrapper), prefix, self._by_shape
        )


def _refuse_unknown(instruction: Instruction) -> None:
    text = instruction.text
    if instruction.opcode in CONTINUATIONS:
        check_continuation(instruction)
    elif instruction.opcode not in BASES and (
        "replica_groups" in text or "channel_id" in text or "source_target_pairs" in text or "has_communication" in text
    ):
        check_silent(instruction)


def _is_partitioned(instruction: Instruction, wrapper: Instruction | None) -> bool:
    """Did XLA's partitioner write it? TPU says so of the elements that are taken out of the fusion around it."""
    taken = [user for user, _ in (wrapper or instruction).users if user.opcode == "get-tuple-element"]
    return any(
        said and all(_PARTITIONED in each.attribute("frontend_attributes") for each in said)
        for said in ([instruction], taken)
    )


def _by_kind(
    written: Written,
    mesh: Mapping[str, int],
    tensors: list[Tensor],
    meanings: list[Meaning],
    partitioned: bool,
    prefix: str,
    by_shape: bool,
) -> Profile:
    """One entry per kind of tensor in the instruction, each of them one execution of it."""
    total: Profile = {}
    for tensor, (operation, realized_as, constant) in zip(tensors, meanings, strict=True):
        dimensions = tensor.shape.dimensions if by_shape else ()
        derived = operation == "reduce-scatter" and partitioned
        named = tensor.shape.dtype, prefix + realized_as, tensor.phase
        kind = Kind(operation, written.axes, *named, derived, constant, dimensions)
        moved = tensor.shape.bytes * (written.group_size if written.operation == "all-gather" else 1)
        on_wire = operation if realized_as == FUSED_SCATTER else written.operation
        amount = Amount(0, 1, moved, moved * tensor.widened, parts_sent(on_wire, moved, devices_of(written.axes, mesh)))
        total[kind] = total.get(kind, Amount(1, 0, 0)).plus(amount)
    if written.operation == "all-to-all" and len(written.shapes) == written.group_size:
        # The tuple form holds one slice of a single tensor for each member of the group.
        total = {kind: amount._replace(tensors=1) for kind, amount in total.items()}
    if written.operation == "ragged-all-to-all":
        total = {kind: amount._replace(bytes=None, sent=None) for kind, amount in total.items()}
    return total


def _add(total: Profile, more: Profile) -> None:
    for kind, amount in more.items():
        total[kind] = total[kind].plus(amount) if kind in total else amount


def _scaled(profile: Profile, factor: int | None) -> Profile:
    return {kind: amount.times(factor) for kind, amount in profile.items()}


def _either(branches: list[Profile]) -> Profile:
    if all(branch == branches[0] for branch in branches):
        return branches[0]
    return {kind: Amount(None, None, None, None, None) for branch in branches for kind in branch}
