"""Which floating-point types a program computes in as it was written, before a compiler chose its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from meshproof.hlo.errors import refuse_depth
from meshproof.hlo.executions import Executions
from meshproof.hlo.module import Computation, Instruction
from meshproof.hlo.parser import parse
from meshproof.hlo.phases import read_paths

TF32 = 19
"""Bits of TensorFloat-32: a sign, 8 of exponent and 10 of mantissa."""

SINGLE = 32
"""Bits of float32."""

SUMMING = frozenset(
    ("dot", "ragged-dot", "convolution", "reduce", "reduce-window", "scatter", "select-and-scatter", "fft", "cholesky")
)
"""What adds many numbers up, where few digits do harm. The others convert, move, or take number by number."""

PRODUCTS = frozenset(("dot", "ragged-dot", "convolution"))
"""Of these what multiplies first: it may take in few digits, and add up in more."""

_FLOAT = re.compile(r"[bt]?f(\d+)")
_PRODUCT = re.compile(r"\balgorithm=dot_([bt]?f\d+)_")
_ROUNDED = re.compile(r"\bexponent_bits=(\d+), mantissa_bits=(\d+)")
_PRECISION = re.compile(r"\boperand_precision={(\w+)")
_FRAME = re.compile(r"\bstack_frame_id=(\d+)")


@dataclass(frozen=True)
class Float:
    """A type of ``bits``, in ``count`` arrays of more than one element, and where the ``first`` of them is made.

    ``summed`` is the number of products, sums and scatters that make or read it, where it has fewer bits than float32;
    ``multiplied`` is that of the products among them that only read it.
    """

    name: str
    bits: int
    count: int
    first: str
    summed: int = 0
    multiplied: int = 0


def floats(text: str) -> tuple[Float, ...]:
    """The types of what ``lowered.as_text("hlo", debug_info=True)`` prints, the narrowest first.

    A product counts by the type that its algorithm multiplies in, too, and a ``reduce-precision`` by what it leaves.
    Raises `HloError` for text that cannot be read.
    """
    found: dict[tuple[int, str], list[Instruction]] = {}
    instructions = tuple(parse(text).instructions)
    for instruction in instructions:
        for kind in dict.fromkeys(_types(instruction)):
            found.setdefault(kind, []).append(instruction)
    return tuple(
        Float(name, bits, len(made), _place(text, made), *(_summed(name, instructions) if bits < SINGLE else ()))
        for (bits, name), made in sorted(found.items())
    )


class Product(NamedTuple):
    """A matrix product or convolution: the type that it multiplies in, its pass, and how often it runs."""

    kind: str
    phase: Literal["forward", "backward", "other"]
    times: int


def multiplied(text: str) -> tuple[Product, ...]:
    """Every product of such a text, in its order: ``other`` is what is not differentiated, as an optimizer's.

    Of kind ``tf32`` is float32 at the precision "high", by which a device may take TensorFloat-32, or by that
    algorithm. One that stands in a branch, or in a loop of which the text does not tell the turns, counts once.
    Raises `HloError` for text that cannot be read.
    """
    module = parse(text)
    runs, within = Executions(module), _Within()
    with refuse_depth():
        return tuple(
            Product(_operand(each), within.phase(each), runs.of(each.computation) or 1)
            for each in module.instructions
            if each.opcode in ("dot", "convolution")
        )


class _Within:
    """The names of what stands around an instruction: a function that is called has names of its own."""

    def __init__(self) -> None:
        self._around: dict[Computation, str] = {}

    def phase(self, instruction: Instruction) -> Literal["forward", "backward", "other"]:
        names = self._names(instruction)
        return "backward" if "transpose(" in names else "forward" if "jvp(" in names else "other"

    def _names(self, instruction: Instruction) -> str:
        around = instruction.computation
        if around not in self._around:
            self._around[around] = " ".join(map(self._names, around.callers))
        return " ".join([*read_paths(instruction), self._around[around]])


def _operand(product: Instruction) -> str:
    if algorithm := product.search(_PRODUCT):
        return algorithm[1]
    dtype, asked = product.operand(0).shapes[0].dtype, product.search(_PRECISION)
    return "tf32" if dtype == "f32" and asked and asked[1] == "high" else dtype


def _summed(name: str, instructions: Iterable[Instruction]) -> tuple[int, int]:
    """How many add up what has a type, or make it so; and how many of these are products that only read it."""

    def has(instruction: Instruction) -> bool:
        return any(name == of for _, of in _types(instruction))

    summing = [each for each in instructions if each.opcode in SUMMING]
    only = [each for each in summing if not has(each) and any(map(has, each.operands))]
    return sum(map(has, summing)) + len(only), sum(each.opcode in PRODUCTS for each in only)


def _types(instruction: Instruction) -> Iterator[tuple[int, str]]:
    """The bits and names of what an instruction makes and computes in."""
    names = [shape.dtype for shape in instruction.shapes if shape.elements > 1]
    if product := instruction.search(_PRODUCT):
        names.append(product[1])
    for name in names:
        if match := _FLOAT.match(name):
            yield (TF32 if name == "tf32" else int(match[1])), name
    if rounded := instruction.search(_ROUNDED):
        exponent, mantissa = map(int, rounded.groups())
        yield 1 + exponent + mantissa, f"{instruction.opcode} to {mantissa} bits of mantissa"


def _place(text: str, made: list[Instruction]) -> str:
    """The first that has a name in the program's words: that, and the line of code that asked for it, where known."""
    first = next(filter(read_paths, made), made[0])
    name = next(iter(read_paths(first)), first.name)
    if frame := first.search(_FRAME):
        location = _row(text, "FileLocations", _entry(_row(text, "StackFrames", frame[1]), "file_location_id"))
        file = _row(text, "FileNames", _entry(location, "file_name_id")).strip('"')
        return f"{name} ({file}:{_entry(location, 'line')})"
    return name


def _row(text: str, table: str, number: str) -> str:
    """A row of one of the tables that stand before the computations; empty where it is not there."""
    rows = text.partition(f"\n{table}\n")[2].partition("\n\n")[0]
    return next((row.partition(" ")[2] for row in rows.splitlines() if row.partition(" ")[0] == number), "")


def _entry(row: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\d+)", row)
    return found[1] if found else "?"
