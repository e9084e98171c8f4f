"""From what the compiler wrote to what it means: the logical operation of each tensor of a collective.

    XLA:CPU, XLA:GPU, XLA:TPU
        all-gather, reduce-scatter, all-to-all, … and their -start forms mean what they say
    XLA:CPU
        an all-reduce of which every use is the device's own slice          reduce-scatter
            realized_as "all-reduce + dynamic-slice"
    XLA:GPU
        the same, where its reduce-scatter pass did not see it              reduce-scatter
            realized_as "all-reduce-start + dynamic-slice"
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

from meshproof.hlo.collectives import Written
from meshproof.hlo.errors import unknown
from meshproof.hlo.module import UNCHANGED, Instruction
from meshproof.hlo.offsets import OffsetReader
from meshproof.hlo.reached import Reached

_SAME_ELEMENTS = UNCHANGED | frozenset(
    {"all-reduce-done", "negate", "abs", "sqrt", "rsqrt", "sign", "reduce-precision", "optimization-barrier"}
)
_WITH_SCALARS = frozenset({"multiply", "divide", "add", "subtract", "maximum", "minimum"})


class Realisations:
    """Classifies the tensors of all-reduces by their definitions and uses."""

    def __init__(self, devices: int) -> None:
        self._offsets = OffsetReader(devices)

    def classify(self, written: Written, fused: bool) -> list[tuple[str, str]]:
        """Per tensor: the logical operation, and what it is realised as."""
        plain = f"fusion {written.operation}" if fused else written.instruction.opcode
        if written.operation != "all-reduce":
            return [(written.operation, plain)] * len(written.shapes)
        return [self._classify_sum(written, index, fused, plain) for index in range(len(written.shapes))]

    def _classify_sum(self, written: Written, index: int, fused: bool, plain: str) -> tuple[str, str]:
        body = written.instruction.computation.name
        named_scatter = fused and body.startswith("all-reduce-scatter")
        if self._is_scattered(written, index):
            return "reduce-scatter", "fusion all-reduce-scatter" if named_scatter else f"{plain} + dynamic-slice"
        if named_scatter:
            problem = f"fusion {body} does more to its all-reduce than slice it: unknown realisation"
            raise written.instruction.refuse(unknown(problem))
        if self._is_padded_shard(written, index):
            return "all-gather", f"dynamic-update-slice + {plain}"
        return "all-reduce", plain

    def _is_scattered(self, written: Written, index: int) -> bool:
        element = index if len(written.shapes) > 1 else None
        slices = _Slices(self._offsets, written, written.shapes[index].elements // written.group_size)
        return slices.cover(Reached(written.instruction), element) and slices.found > 0

    def _is_padded_shard(self, written: Written, index: int) -> bool:
        """Is this operand zero everywhere but where the device wrote its own 1/group-size?"""
        update = Reached(written.instruction).operand(index).origin
        if update.instruction.opcode != "dynamic-update-slice":
            return False
        shard = sum(shape.elements for shape in update.operand(1).instruction.shapes)
        return (
            _is_zero(update.operand(0))
            and _adds(written.instruction)
            and shard * written.group_size == written.shapes[index].elements
            and self._offsets.differ(update, 2, written.groups)
        )


def _is_zero(value: Reached) -> bool:
    at = value.origin
    if at.instruction.opcode == "broadcast":
        return _is_zero(at.operand(0))
    return at.instruction.opcode == "constant" and at.instruction.literal in ("0", "-0", "false")


def _adds(reduction: Instruction) -> bool:
    computations = reduction.computation.module.computations
    reducer = computations.get(reduction.attribute("to_apply").strip("% "))
    return reducer is not None and reducer.root.opcode in ("add", "or")


class _Slices:
    """Follows a value to its uses and asks whether every one is the device's own slice."""

    def __init__(self, offsets: OffsetReader, written: Written, slice_elements: int) -> None:
        self._offsets = offsets
        self._written = written
        self._slice_elements = slice_elements
        self.found = 0

    def cover(self, value: Reached, element: int | None = None) -> bool:
        """`element` picks one of a tuple."""
        if value.instruction.is_root and not self._cover_outside(value, element):
            return False
        if element is not None:
            return self._cover_element(value, element)
        return all(self._cover_use(user, index) for user, index in value.users)

    def _cover_element(self, value: Reached, element: int) -> bool:
        takers = value.instruction.computation.takers.get(value.instruction)
        if takers is not None:
            return all(self.cover(Reached(taker, value.inside)) for taker in takers.get(element, ()))
        users = [user for user, _ in value.users]
        if all(user.instruction.opcode in ("all-reduce-done", "optimization-barrier") for user in users):
            return all(self.cover(user, element) for user in users)
        return False

    def _cover_outside(self, value: Reached, element: int | None) -> bool:
        caller = value.caller
        return caller is not None and self.cover(caller, element)

    def _cover_use(self, user: Reached, index: int) -> bool:
        opcode = user.instruction.opcode
        if opcode == "dynamic-slice" and index == 0:
            self.found += 1
            sliced = sum(shape.elements for shape in user.instruction.shapes)
            return sliced == self._slice_elements and self._offsets.differ(user, 1, self._written.groups)
        if opcode in _SAME_ELEMENTS or (opcode in _WITH_SCALARS and _others_are_scalars(user.instruction, index)):
            return self.cover(user)
        if opcode == "tuple" and user.instruction.is_root:
            return self._cover_outside(user, index)
        if opcode in ("fusion", "call"):
            parameter = user.instruction.called.parameters.get(index)
            return parameter is not None and self.cover(user.into(parameter))
        return False


def _others_are_scalars(user: Instruction, index: int) -> bool:
    return all(_is_scalar(other) for at, other in enumerate(user.operands) if at != index)


def _is_scalar(value: Instruction) -> bool:
    if value.opcode == "broadcast":
        return _is_scalar(value.operand(0))
    return sum(shape.elements for shape in value.shapes) == 1
