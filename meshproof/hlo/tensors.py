"""The tensors a collective carries, each with its own phase.

A combiner packs many tensors into one collective: as operands of one instruction (all compilers), or as one vector
that concatenates them (GPU's all-reduce; such a concatenation has no `op_name`, one written in the program has). Where
each tensor came from is read, in this order, from the get-tuple-element that takes it out again, from its part of the
collective's merged `op_name`, or from the one path of the collective, or of the fusion or async instruction around it.
Where that one path stands for many tensors (TPU keeps any of theirs) or is missing, the path of what produced the
operand is read too; if the two disagree, the phase is "other".
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from meshproof.hlo.collectives import Written
from meshproof.hlo.module import Instruction
from meshproof.hlo.phases import common_phase, phase_of, read_paths
from meshproof.hlo.shapes import Shape


@dataclass(frozen=True)
class Tensor:
    """One tensor of a collective: the operand it travels in, its shape on one device, and its phase.

    ``part``: where a compiler concatenated several vectors, its first element there, and the one after its last.
    ``widened``: it is float32, converted from a half-wide float just before, as XLA:CPU does for every collective.
    """

    operand: int
    shape: Shape
    phase: str
    widened: bool = False
    part: tuple[int, int] | None = None


def carried(written: Written, wrapper: Instruction | None) -> list[Tensor]:
    """The tensors of a collective. `wrapper` is the fusion or async instruction around it, if there is one."""
    instruction = written.instruction
    paths = read_paths(instruction)
    if not paths and wrapper is not None:
        paths = read_paths(wrapper)
    if len(written.shapes) == 1:
        parts = _concatenated(written)
        if parts:
            ends = list(accumulate((part.shape.elements for part in parts), initial=0))
            return [
                Tensor(0, part.shape, _phase(part, paths, at, len(parts)), _widened(part), (ends[at], ends[at + 1]))
                for at, part in enumerate(parts)
            ]
        part = _Part(written.shapes[0], instruction.operand(0))
        return [Tensor(0, part.shape, _phase(part, paths, 0, 1), _widened(part))]
    taken = _paths_of_elements(instruction)
    parts = [_Part(shape, producer) for shape, producer in zip(written.shapes, instruction.operands, strict=False)]
    return [
        Tensor(
            at, part.shape, phase_of(taken[at]) if at in taken else _phase(part, paths, at, len(parts)), _widened(part)
        )
        for at, part in enumerate(parts)
    ]


class _Part(NamedTuple):
    """A tensor, and what produced it in the computation of the collective."""

    shape: Shape
    producer: Instruction


def _widened(part: _Part) -> bool:
    made = part.producer
    if made.opcode == "fusion":
        made = made.called.root
    while made.opcode in ("bitcast", "copy", "reshape", "transpose"):
        made = made.operand(0)
    if made.opcode != "convert" or part.shape.dtype != "f32":
        return False
    return [shape.dtype for shape in made.operand(0).shapes] in (["bf16"], ["f16"])


def _phase(part: _Part, paths: list[str], at: int, count: int) -> str:
    if len(paths) == count:
        return phase_of(paths[at])
    phases = {common_phase(paths)} if paths else set()
    if not paths or count > 1:
        phases.add(common_phase(_producer_paths(part.producer)))
    phases.discard("other")
    return phases.pop() if len(phases) == 1 else "other"


def _producer_paths(producer: Instruction) -> list[str]:
    paths = read_paths(producer)
    while not paths and producer.opcode in ("bitcast", "copy", "get-tuple-element"):
        producer = producer.operand(0)
        paths = read_paths(producer)
    return paths


def _paths_of_elements(instruction: Instruction) -> dict[int, str]:
    """Per element of the result, the path of the get-tuple-element that takes it."""
    users = instruction.users
    if instruction.opcode.endswith("-start"):
        done = [user for user, _ in users if user.opcode.endswith("-done")]
        users = done[0].users if len(done) == 1 else []
    found = {}
    for user, _ in users:
        paths = read_paths(user) if user.opcode == "get-tuple-element" else []
        if len(paths) == 1:
            found[user.tuple_index] = paths[0]
    return found


def _concatenated(written: Written) -> list[_Part]:
    """The vectors that the compiler packed into the one operand, if it did."""
    packed = written.instruction.operand(0)
    producers = packed.operands
    if packed.opcode == "fusion":
        packed = packed.called.root
    if written.operation != "all-reduce" or packed.opcode != "concatenate":
        return []
    shapes = [shape for vector in packed.operands for shape in vector.shapes]
    if read_paths(packed) or len(producers) != len(shapes):
        return []
    return [_Part(shape, producer) for shape, producer in zip(shapes, producers, strict=True)]
