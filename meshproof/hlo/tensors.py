"""The tensors a collective carries, each with its own phase.

A combiner packs many tensors into one collective: as operands of one instruction (all compilers), or as one vector
that concatenates them (GPU's all-reduce; such a concatenation has no `op_name`, one written in the program has). Where
each tensor came from is read, in this order, from the get-tuple-element that takes it out again, from its part of the
collective's merged `op_name`, or from the one path of the collective, or of the fusion or async instruction around it.
Where that one path stands for many tensors (TPU keeps any of theirs) or is missing, what produced the operand has a say
too; if the two disagree, the phase is "other".
"""

from dataclasses import dataclass
from typing import NamedTuple

from meshproof.hlo.collectives import Written
from meshproof.hlo.dataflow import Dataflow, element_of
from meshproof.hlo.parser import Computation, Instruction
from meshproof.hlo.phases import common_phase, phase_of, read_paths
from meshproof.hlo.shapes import Shape


@dataclass(frozen=True)
class Tensor:
    """One tensor of a collective: the operand it travels in, its shape on one device, and its phase."""

    operand: int
    shape: Shape
    phase: str


def carried(flow: Dataflow, computation: Computation, written: Written, wrapper: Instruction | None) -> list[Tensor]:
    """The tensors of a collective. `wrapper` is the fusion or async instruction around it, if there is one."""
    instruction = written.instruction
    paths = read_paths(instruction.text, instruction.operands_start)
    if not paths and wrapper is not None:
        paths = read_paths(wrapper.text, wrapper.operands_start)
    if len(written.shapes) == 1:
        parts = _concatenated(flow, computation, written) or [_Part(written.shapes[0], instruction.operands[0])]
        return [
            Tensor(0, part.shape, _phase(flow, computation, part, paths, at, len(parts)))
            for at, part in enumerate(parts)
        ]
    taken = _paths_of_elements(flow, computation, instruction)
    parts = [_Part(shape, name) for shape, name in zip(written.shapes, instruction.operands, strict=False)]
    return [
        Tensor(at, part.shape, phase_of(taken[at]))
        if at in taken
        else Tensor(at, part.shape, _phase(flow, computation, part, paths, at, len(parts)))
        for at, part in enumerate(parts)
    ]


class _Part(NamedTuple):
    """A tensor and the name of what produced it, in the computation of the collective."""

    shape: Shape
    producer: str


def _phase(flow: Dataflow, computation: Computation, part: _Part, paths: list[str], at: int, count: int) -> str:
    if len(paths) == count:
        return phase_of(paths[at])
    phases = {common_phase(paths)} if paths else set()
    if not paths or count > 1:
        phases.add(common_phase(_producer_paths(flow, computation, part.producer)))
    phases.discard("other")
    return phases.pop() if len(phases) == 1 else "other"


def _producer_paths(flow: Dataflow, computation: Computation, name: str) -> list[str]:
    producer = flow.definition(computation, name)
    while producer is not None:
        paths = read_paths(producer.text, producer.operands_start)
        if paths or producer.opcode not in ("bitcast", "copy", "get-tuple-element"):
            return paths
        producer = flow.definition(computation, producer.operands[0])
    return []


def _paths_of_elements(flow: Dataflow, computation: Computation, instruction: Instruction) -> dict[int, str]:
    """Per element of the result, the path of the get-tuple-element that takes it."""
    users = flow.users(computation, instruction.name)
    if instruction.opcode.endswith("-start"):
        done = [user for user, _ in users if user.opcode.endswith("-done")]
        users = flow.users(computation, done[0].name) if len(done) == 1 else []
    found = {}
    for user, _ in users:
        paths = read_paths(user.text, user.operands_start) if user.opcode == "get-tuple-element" else []
        if len(paths) == 1:
            found[element_of(user)] = paths[0]
    return found


def _concatenated(flow: Dataflow, computation: Computation, written: Written) -> list[_Part]:
    """The vectors that the compiler packed into the one operand, if it did."""
    packed = flow.operand(computation, written.instruction, 0)
    producers = packed.operands
    if packed.opcode == "fusion":
        computation = flow.callees(packed)["calls"][0]
        packed = computation.root
    if written.operation != "all-reduce" or packed.opcode != "concatenate":
        return []
    if read_paths(packed.text, packed.operands_start) or len(producers) != len(packed.operands):
        return []
    shapes = [flow.operand(computation, packed, index).shapes for index in range(len(producers))]
    return [_Part(shape, name) for (shape,), name in zip(shapes, producers, strict=True)]
