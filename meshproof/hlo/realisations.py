"""From what the compiler wrote to what it means: the logical operation of each tensor of a collective.

    XLA:CPU, XLA:GPU, XLA:TPU
        all-gather, reduce-scatter, all-to-all, … and their -start forms mean what they say
    XLA:CPU
        an all-reduce of which every use is the device's own slice          reduce-scatter
            realized_as "all-reduce + dynamic-slice"
    XLA:GPU
        the same, where its reduce-scatter pass did not see it              reduce-scatter
            realized_as "all-reduce-start + dynamic-slice"
        the same of a vector that the compiler concatenated, of whose part  reduce-scatter
            every use is a static slice of exactly that part, then the device's own slice of this
    XLA:TPU
        the same, for small tensors                                         reduce-scatter
        a fusion that calls all-reduce-scatter*: an all-reduce and slices   reduce-scatter
            realized_as "fusion all-reduce-scatter"
        an all-reduce of zeros into which the device wrote its own shard    all-gather
            realized_as "dynamic-update-slice + all-reduce"
        fusions around one collective, from AsyncCollectiveStart to -Done   itself, once
            realized_as "fusion all-gather"

XLA:CPU has no pass that makes a reduce-scatter of annotated shardings. There a tensor of an all-reduce is a logical
reduce-scatter if *all* its uses, seen through get-tuple-element, copies, reshapes, conversions, elementwise arithmetic
with broadcast scalars, and into and out of fusions, are dynamic-slices of 1/group-size of its elements at offsets that
differ between the members of a group and depend on the partition alone. One use of the whole makes it an all-reduce.
The rules apply to all targets alike: the text does not say for which one it was compiled.
"""

import re
from typing import NamedTuple

from meshproof.hlo.collectives import Written
from meshproof.hlo.errors import unknown
from meshproof.hlo.module import UNCHANGED, Instruction
from meshproof.hlo.offsets import OffsetReader, is_of_position
from meshproof.hlo.reached import Reached
from meshproof.hlo.reducers import reducer
from meshproof.hlo.tensors import Tensor

_SAME_ELEMENTS = UNCHANGED | frozenset(
    {"all-reduce-done", "negate", "abs", "sqrt", "rsqrt", "sign", "reduce-precision", "optimization-barrier"}
)
_WITH_SCALARS = frozenset({"multiply", "divide", "add", "subtract", "maximum", "minimum"})


_STATIC = re.compile(r", slice=\{\[(\d{1,18}):(\d{1,18})(?::1)?\]\}")
Part = tuple[int, int]
FUSED_SCATTER = "fusion all-reduce-scatter"
"""Named an all-reduce, but sends what a reduce-scatter sends."""


class Meaning(NamedTuple):
    """The logical operation of a tensor, what it is realised as, and whether it is a function of positions alone."""

    operation: str
    realized_as: str
    is_constant: bool = False


class Realisations:
    """Classifies the tensors of all-reduces by their definitions and uses."""

    def __init__(self, devices: int) -> None:
        self._offsets = OffsetReader(devices)

    def classify(self, written: Written, tensors: list[Tensor], fused: bool) -> list[Meaning]:
        """What each tensor means."""
        plain = f"fusion {written.operation}" if fused else written.instruction.opcode
        if written.operation != "all-reduce":
            return [Meaning(written.operation, plain)] * len(tensors)
        return [self._classify_sum(written, tensor, fused, plain) for tensor in tensors]

    def _classify_sum(self, written: Written, tensor: Tensor, fused: bool, plain: str) -> Meaning:
        body, index = written.instruction.computation.name, tensor.operand
        named_scatter = fused and body.startswith("all-reduce-scatter")
        if self._is_scattered(written, tensor):
            return Meaning("reduce-scatter", FUSED_SCATTER if named_scatter else f"{plain} + dynamic-slice")
        if named_scatter:
            problem = f"fusion {body} does more to its all-reduce than slice it: unknown realisation"
            raise written.instruction.refuse(unknown(problem))
        update = Reached(written.instruction).operand(index).origin
        if self._is_padded_shard(written, index, update):
            is_constant = is_of_position(update.operand(1))
            return Meaning("all-gather", f"dynamic-update-slice + {plain}", is_constant)
        return Meaning("all-reduce", plain)

    def _is_scattered(self, written: Written, tensor: Tensor) -> bool:
        element = tensor.operand if len(written.shapes) > 1 else None
        slices = _Slices(self._offsets, written, tensor)
        return slices.cover(Reached(written.instruction), element, tensor.part) and slices.found > 0

    def _is_padded_shard(self, written: Written, index: int, update: Reached) -> bool:
        """Is this operand zero everywhere but where the device wrote its own 1/group-size?"""
        if update.instruction.opcode != "dynamic-update-slice":
            return False
        shard = sum(shape.elements for shape in update.operand(1).instruction.shapes)
        return (
            _is_zero(update.operand(0))
            and reducer(written.instruction) in ("add", "or")
            and shard * written.group_size == written.shapes[index].elements
            and self._offsets.differ(update, 2, written.groups)
        )


def _is_zero(value: Reached) -> bool:
    at = value.origin
    if at.instruction.opcode == "broadcast":
        return _is_zero(at.operand(0))
    return at.instruction.opcode == "constant" and at.instruction.literal in ("0", "-0", "false")


class _Slices:
    """Follows a tensor to its uses and asks whether every one is the device's own slice."""

    def __init__(self, offsets: OffsetReader, written: Written, tensor: Tensor) -> None:
        self._offsets = offsets
        self._written = written
        self._slice_elements = tensor.shape.elements // written.group_size
        self.found = 0

    def cover(self, value: Reached, element: int | None = None, part: Part | None = None) -> bool:
        """`element` picks one of a tuple, `part` some elements of a vector."""
        if value.instruction.is_root and not self._cover_outside(value, element, part):
            return False
        if element is not None:
            return self._cover_element(value, element)
        return all(self._cover_use(user, index, part) for user, index in value.users)

    def _cover_element(self, value: Reached, element: int) -> bool:
        takers = value.instruction.computation.takers.get(value.instruction)
        if takers is not None:
            return all(self.cover(Reached(taker, value.inside)) for taker in takers.get(element, ()))
        users = [user for user, _ in value.users]
        if all(user.instruction.opcode in ("all-reduce-done", "optimization-barrier") for user in users):
            return all(self.cover(user, element) for user in users)
        return False

    def _cover_outside(self, value: Reached, element: int | None, part: Part | None = None) -> bool:
        caller = value.caller
        return caller is not None and self.cover(caller, element, part)

    def _cover_use(self, user: Reached, index: int, part: Part | None) -> bool:
        opcode = user.instruction.opcode
        if opcode in ("fusion", "call"):
            parameter = user.instruction.called.parameters.get(index)
            return parameter is not None and self.cover(user.into(parameter), part=part)
        if part is not None:
            return self._cover_use_of_part(user, part)
        if opcode == "dynamic-slice" and index == 0:
            self.found += 1
            sliced = sum(shape.elements for shape in user.instruction.shapes)
            return sliced == self._slice_elements and self._offsets.differ(user, 1, self._written.groups)
        if opcode in _SAME_ELEMENTS or (opcode in _WITH_SCALARS and _is_of_it_alone(user.instruction, index)):
            return self.cover(user)
        return opcode == "tuple" and user.instruction.is_root and self._cover_outside(user, index)

    def _cover_use_of_part(self, user: Reached, part: Part) -> bool:
        """Is this use of the vector one of other elements, or of exactly these as a tensor of their own?"""
        if user.instruction.opcode in ("all-reduce-done", "copy"):
            return self.cover(user, part=part)
        taken = user.instruction.search(_STATIC) if user.instruction.opcode == "slice" else None
        if taken is None:
            return False
        begin, end = int(taken[1]), int(taken[2])
        return end <= part[0] or part[1] <= begin or ((begin, end) == part and self.cover(user))


def _is_of_it_alone(user: Instruction, index: int) -> bool:
    """Whether all that this operand meets are scalars, or itself, as in the square that Adam takes."""
    own = user.operand(index)
    return all(other is own or _is_scalar(other) for other in user.operands)


def _is_scalar(value: Instruction) -> bool:
    if value.opcode == "broadcast":
        return _is_scalar(value.operand(0))
    return sum(shape.elements for shape in value.shapes) == 1
