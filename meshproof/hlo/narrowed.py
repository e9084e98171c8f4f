"""What is sent in more bits than anything that reads it keeps: parameters that are gathered in float32 and then cast.

Only what moves data as it is can be cast before: an all-gather, an all-to-all, a permutation. What sums may want its
bits.
"""

from dataclasses import dataclass

from meshproof.hlo.errors import refuse_depth
from meshproof.hlo.executions import Executions, product_of
from meshproof.hlo.module import Instruction
from meshproof.hlo.order import check_order
from meshproof.hlo.parser import parse
from meshproof.hlo.shapes import BITS, Shape

_SENT = {
    each: each.removesuffix("-done")
    for each in ("all-gather", "all-gather-done", "all-to-all", "collective-permute", "collective-permute-done")
}
_AS_IT_IS = frozenset({"copy", "bitcast", "reshape", "transpose", "copy-start", "copy-done"})


@dataclass(frozen=True)
class Narrowed:
    """An array that ``operation`` sends in ``shape``, and that all readers cast to ``dtype``.

    ``bytes`` are those of the whole array that a cast before would save in a step; ``None`` where the text does not
    tell how often it runs.
    """

    name: str
    operation: str
    shape: Shape
    dtype: str
    bytes: int | None
    line: int


def narrowed(text: str) -> tuple[Narrowed, ...]:
    """Those of a program, in the order of its text. Raises `HloError` for text that cannot be read."""
    module = parse(text)
    with refuse_depth():
        check_order(module)
        executions = Executions(module)
        return tuple(
            Narrowed(
                sent.name,
                _SENT[sent.opcode],
                shape,
                dtype,
                product_of(
                    executions.of(sent.computation),
                    shape.bytes * (BITS[shape.dtype] - BITS[dtype]) // BITS[shape.dtype],
                ),
                sent.line,
            )
            for sent in module.instructions
            if sent.opcode in _SENT
            for shape, value in _arrays(sent)
            if _is_float(shape.dtype) and (dtype := _read_as(value)) and BITS[dtype] < BITS[shape.dtype]
        )


def _arrays(sent: Instruction) -> list[tuple[Shape, Instruction]]:
    """The arrays of a result, each with the instruction that has it alone; of a tuple those that are taken."""
    if len(sent.shapes) == 1:
        return [(sent.shapes[0], sent)]
    return [(sent.shapes[user.tuple_index], user) for user, _ in sent.users if user.opcode == "get-tuple-element"]


def _read_as(value: Instruction) -> str:
    """The widest float that anything makes of a value by a cast; empty where something reads it as it is."""
    kept: list[str] = []
    if value.is_root:
        return ""
    for user, index in value.users:
        if user.opcode == "convert":
            read = user.shapes[0].dtype
        elif user.opcode in _AS_IT_IS:
            read = _read_as(user)
        elif user.opcode == "fusion":
            read = _read_as(user.called.parameters[index])
        else:
            read = ""
        if not read or not _is_float(read):
            return ""
        kept.append(read)
    return max(kept, key=BITS.__getitem__, default="")


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))
