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
The rules apply to all targets alike, for the text does not say which one it was compiled for.
"""

from meshproof.hlo.collectives import Written
from meshproof.hlo.dataflow import CallSite, Dataflow, element_of, number_of
from meshproof.hlo.errors import unknown
from meshproof.hlo.offsets import OffsetReader
from meshproof.hlo.parser import Computation, Instruction

_SAME_ELEMENTS = frozenset(
    {"copy", "bitcast", "reshape", "convert", "transpose", "copy-start", "copy-done", "all-reduce-done"}
    | {"negate", "abs", "sqrt", "rsqrt", "sign", "reduce-precision", "optimization-barrier"}
)
_WITH_SCALARS = frozenset({"multiply", "divide", "add", "subtract", "maximum", "minimum"})
_UNCHANGED = frozenset({"copy", "bitcast", "reshape", "convert", "transpose", "copy-done", "copy-start"})


class Realisations:
    """Classifies the tensors of all-reduces by their definitions and uses."""

    def __init__(self, flow: Dataflow, devices: int) -> None:
        self._flow = flow
        self._offsets = OffsetReader(flow, devices)

    def classify(self, computation: Computation, written: Written, fused: bool) -> list[tuple[str, str]]:
        """Per tensor: the logical operation, and what it is realised as."""
        instruction = written.instruction
        plain = f"fusion {written.operation}" if fused else instruction.opcode
        if written.operation != "all-reduce":
            return [(written.operation, plain)] * len(written.shapes)
        return [self._classify_sum(computation, written, index, fused, plain) for index in range(len(written.shapes))]

    def _classify_sum(
        self, computation: Computation, written: Written, index: int, fused: bool, plain: str
    ) -> tuple[str, str]:
        named_scatter = fused and computation.name.startswith("all-reduce-scatter")
        if self._is_scattered(computation, written, index):
            return "reduce-scatter", "fusion all-reduce-scatter" if named_scatter else f"{plain} + dynamic-slice"
        if named_scatter:
            problem = f"fusion {computation.name} does more to its all-reduce than slice it: unknown realisation"
            raise written.instruction.refuse(unknown(problem))
        if self._is_padded_shard(computation, written, index):
            return "all-gather", f"dynamic-update-slice + {plain}"
        return "all-reduce", plain

    def _is_scattered(self, computation: Computation, written: Written, index: int) -> bool:
        element = index if len(written.shapes) > 1 else None
        slices = _Slices(self._flow, self._offsets, written, written.shapes[index].elements // written.group_size)
        return slices.cover(computation, written.instruction, element, ()) and slices.found > 0

    def _is_padded_shard(self, computation: Computation, written: Written, index: int) -> bool:
        """Is this operand zero everywhere but where the device wrote its own 1/group-size?"""
        found = self._look_through(computation, self._flow.operand(computation, written.instruction, index))
        if found is None or found[1].opcode != "dynamic-update-slice":
            return False
        where, update = found
        background = self._look_through(where, self._flow.operand(where, update, 0))
        shard = self._flow.operand(where, update, 1).shapes
        return (
            background is not None
            and self._is_zero(*background)
            and self._adds(written.instruction)
            and sum(shape.elements for shape in shard) * written.group_size == written.shapes[index].elements
            and self._offsets.differ(where, update, 2, written.groups)
        )

    def _look_through(self, computation: Computation, at: Instruction) -> tuple[Computation, Instruction] | None:
        while True:
            if at.opcode in _UNCHANGED:
                at = self._flow.operand(computation, at, 0)
            elif at.opcode == "fusion" and not at.type_text.startswith("("):
                computation = self._flow.callees(at)["calls"][0]
                at = computation.root
            elif at.opcode == "get-tuple-element":
                fusion = self._flow.operand(computation, at, 0)
                if fusion.opcode != "fusion":
                    return None
                computation = self._flow.callees(fusion)["calls"][0]
                if computation.root.opcode != "tuple":
                    return None
                at = self._flow.operand(computation, computation.root, element_of(at))
            elif at.opcode == "parameter" and (site := self._offsets.only_site(computation)) is not None:
                computation = site.caller
                at = self._flow.operand(computation, site.instruction, number_of(at))
            else:
                return computation, at

    def _is_zero(self, computation: Computation, at: Instruction) -> bool:
        if at.opcode == "broadcast":
            found = self._look_through(computation, self._flow.operand(computation, at, 0))
            return found is not None and self._is_zero(*found)
        return at.opcode == "constant" and at.operands in (("0",), ("-0",), ("false",))

    def _adds(self, instruction: Instruction) -> bool:
        reducer = self._flow.module.computations.get(instruction.attributes.get("to_apply", ("", 0))[0].strip("% "))
        return reducer is not None and reducer.root.opcode in ("add", "or")


class _Slices:
    """Follows a value to its uses and asks whether every one is the device's own slice."""

    def __init__(self, flow: Dataflow, offsets: OffsetReader, written: Written, slice_elements: int) -> None:
        self._flow = flow
        self._offsets = offsets
        self._written = written
        self._slice_elements = slice_elements
        self.found = 0

    def cover(
        self, computation: Computation, value: Instruction, element: int | None, inside: tuple[CallSite, ...]
    ) -> bool:
        """`element` picks one of a tuple. `inside` are the fusions entered on the way."""
        if value.is_root and not self._cover_outside(computation, value, element, inside):
            return False
        if element is not None:
            return self._cover_element(computation, value, element, inside)
        users = self._flow.users(computation, value.name)
        return all(self._cover_use(computation, user, index, inside) for user, index in users)

    def _cover_element(
        self, computation: Computation, value: Instruction, element: int, inside: tuple[CallSite, ...]
    ) -> bool:
        takers = self._flow.takers(computation, value.name)
        if takers is not None:
            return all(self.cover(computation, taker, None, inside) for taker in takers.get(element, ()))
        users = [user for user, _ in self._flow.users(computation, value.name)]
        if all(user.opcode in ("all-reduce-done", "optimization-barrier") for user in users):
            return all(self.cover(computation, user, element, inside) for user in users)
        return False

    def _cover_outside(
        self, computation: Computation, value: Instruction, element: int | None, inside: tuple[CallSite, ...]
    ) -> bool:
        if inside:
            site, outer = inside[-1], inside[:-1]
        else:
            only = self._offsets.only_site(computation)
            if only is None:
                return False
            site, outer = only, ()
        return self.cover(site.caller, site.instruction, element, outer)

    def _cover_use(self, computation: Computation, user: Instruction, index: int, inside: tuple[CallSite, ...]) -> bool:
        opcode = user.opcode
        if opcode == "dynamic-slice" and index == 0:
            self.found += 1
            sliced = sum(shape.elements for shape in user.shapes)
            return sliced == self._slice_elements and self._offsets.differ(
                computation, user, 1, self._written.groups, inside
            )
        if opcode in _SAME_ELEMENTS or (opcode in _WITH_SCALARS and self._others_are_scalars(computation, user, index)):
            return self.cover(computation, user, None, inside)
        if opcode == "tuple" and user.is_root:
            return self._cover_outside(computation, user, index, inside)
        if opcode in ("fusion", "call"):
            called = next(iter(self._flow.callees(user).values()))[0]
            parameter = self._flow.parameter(called, index)
            site = CallSite(computation, user)
            return parameter is not None and self.cover(called, parameter, None, (*inside, site))
        return False

    def _others_are_scalars(self, computation: Computation, user: Instruction, index: int) -> bool:
        others = (
            self._flow.operand(computation, user, at)
            for at in range(len(self._flow.operands(computation, user)))
            if at != index
        )
        return all(self._is_scalar(computation, other) for other in others)

    def _is_scalar(self, computation: Computation, value: Instruction) -> bool:
        if value.opcode == "broadcast":
            return self._is_scalar(computation, self._flow.operand(computation, value, 0))
        return sum(shape.elements for shape in value.shapes) == 1
