"""Reads one collective instruction: what it does, between which positions, with which tensors.

Who takes part, by XLA's rules, in a module of one replica and N partitions:

    all-gather, all-reduce, reduce-scatter    use_global_device_ids=true: the groups name partitions;
                                              else with a channel: groups of replicas, across all partitions;
                                              else: groups of replicas: with one replica nothing moves
    the others                                with a channel: partitions; without: replicas, and nothing moves
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from meshproof.hlo.errors import unknown
from meshproof.hlo.module import Instruction
from meshproof.hlo.replica_groups import Groups, match_axes, match_pair_axes, read_groups
from meshproof.hlo.shapes import Shape

_GROUPED = ("all-gather", "all-reduce", "reduce-scatter")
_OTHERS = ("all-to-all", "ragged-all-to-all", "collective-broadcast", "collective-permute")
BASES = {
    **{base: base for base in (*_GROUPED, *_OTHERS)},
    **{f"{base}-start": base for base in (*_GROUPED, *_OTHERS)},
    "send": "send",
}
# Later parts of what is counted at its start, and the receiving side of sends.
CONTINUATIONS = frozenset(
    {f"{base}-{part}" for base in (*_GROUPED, *_OTHERS) for part in ("update", "done")}
    | {"async-update", "async-done", "send-done", "recv", "recv-done"}
)
_PAIRS_OF_SEND = re.compile(r'_xla_send_recv_source_target_pairs="?')
_PAIRS = re.compile(r"\{(?:\{\d{1,9},\d{1,9}\}(?:,\s*\{\d{1,9},\d{1,9}\})*)?\}")
_PAIR = re.compile(r"(\d+),(\d+)")
_SLICE = re.compile(r"\{([\d,]*)\}")
_SIZE = re.compile(r"\d{1,9}")
_KEEPERS = ("all-to-all", "collective-permute")
_COMMUNICATES = ("replica_groups", "source_target_pairs", "channel_id")


@dataclass(frozen=True)
class Written:
    """A collective as the compiler wrote it: `groups` are positions, `shapes` what each device contributes."""

    instruction: Instruction
    operation: str
    groups: Groups
    axes: tuple[str, ...]
    shapes: tuple[Shape, ...]

    @property
    def group_size(self) -> int:
        """Members of each group."""
        return len(self.groups[0])


def read_collective(instruction: Instruction, mesh: Mapping[str, int]) -> Written | None:
    """The collective in this instruction, or None where it moves nothing.

    Raises `HloError` for unknown spellings, ids out of range, and groups that are no product of axes of `mesh`.
    """
    operation = BASES[instruction.opcode]
    if operation == "send":
        if instruction.attribute("is_host_transfer") == "true":
            return None
        operation = "collective-permute"
    if operation == "collective-permute":
        groups, start = _read_pairs(instruction)
    else:
        groups, start = _read_groups(instruction, operation, prod(mesh.values()))
    try:
        axes = (match_pair_axes if operation == "collective-permute" else match_axes)(groups, mesh)
    except ValueError as error:
        raise instruction.refuse(unknown(str(error)), start) from None
    if not axes:
        return None
    written = Written(instruction, operation, groups, axes, _contributions(instruction, operation))
    _check_result(written)
    return written


def check_continuation(instruction: Instruction) -> None:
    """Refuse an update or a done that has groups or pairs: it may be a start whose name was damaged."""
    if "replica_groups=" in instruction.text or ", source_target_pairs=" in instruction.text:
        raise instruction.refuse(unknown(f"{instruction.opcode} with groups or pairs of its own"))


def check_silent(instruction: Instruction) -> None:
    """Refuse an unknown opcode with groups, pairs or a channel, and a custom call that says that it communicates."""
    for attribute in _COMMUNICATES:
        if f"{attribute}=" in instruction.text and attribute in instruction.attributes:
            problem = f"unknown opcode {instruction.opcode!r} with {attribute}: it may communicate"
            raise instruction.refuse(unknown(problem))
    if instruction.opcode == "custom-call" and '"has_communication":true' in instruction.text.replace(" ", ""):
        raise instruction.refuse(unknown("a custom call that communicates: its bytes cannot be read from the text"))


def _read_groups(instruction: Instruction, operation: str, devices: int) -> tuple[Groups, int]:
    """The groups as positions, and where they stand in the text."""
    attributes = instruction.attributes
    if "replica_groups" not in attributes:
        raise instruction.refuse(unknown(f"{instruction.opcode} without replica_groups="))
    start = attributes["replica_groups"][1]
    has_channel = "channel_id" in attributes
    names_devices = instruction.attribute("use_global_device_ids") == "true"
    if names_devices and not has_channel:
        raise instruction.refuse(unknown("use_global_device_ids=true without channel_id="), start)
    names_partitions = names_devices or (has_channel and operation not in _GROUPED)
    try:
        groups = read_groups(instruction.text, start, devices if names_partitions else 1)
    except ValueError as error:
        raise instruction.refuse(unknown(str(error)), start) from None
    if names_partitions:
        return groups, start
    return ((tuple(range(devices)),) if has_channel else tuple((position,) for position in range(devices))), start


def _read_pairs(instruction: Instruction) -> tuple[Groups, int]:
    """The (source, target) pairs, and where they stand in the text."""
    start = instruction.attributes.get("source_target_pairs", ("", -1))[1]
    if instruction.opcode == "send":
        found = instruction.search(_PAIRS_OF_SEND)
        start = found.end() if found else -1
    if start < 0:
        raise instruction.refuse(unknown(f"{instruction.opcode} between devices without its source-target pairs"))
    match = _PAIRS.match(instruction.text, start)
    if match is None:
        raise instruction.refuse(unknown("expected pairs such as source_target_pairs={{0,1},{1,2}}"), start)
    pairs = tuple((int(source), int(target)) for source, target in _PAIR.findall(match[0]))
    if "channel_id" not in instruction.attributes and any(max(pair) > 0 for pair in pairs):
        raise instruction.refuse("without channel_id= the pairs name replicas, and there is only one", start)
    return pairs, start


def _contributions(instruction: Instruction, operation: str) -> tuple[Shape, ...]:
    """Shapes of the operands, which every asynchronous form prints alike, unlike those of results."""
    if operation == "collective-permute" and "slice_sizes" in instruction.attributes:
        return _slices(instruction.operand(0).shapes, instruction)
    only_first = instruction.opcode == "send" or operation == "ragged-all-to-all"
    operands = (instruction.operand(0),) if only_first else instruction.operands
    shapes = tuple(shape for operand in operands for shape in operand.shapes)
    if not shapes:
        raise instruction.refuse(unknown(f"{instruction.opcode} without operands"))
    return shapes


def _slices(source: tuple[Shape, ...], instruction: Instruction) -> tuple[Shape, ...]:
    """What a permute in place moves: slices of its first operand, of the sizes in `slice_sizes`."""
    spelled, start = instruction.attributes["slice_sizes"]
    sizes = [tuple(map(int, _SIZE.findall(each))) for each in _SLICE.findall(spelled)]
    arrays = source * len(sizes) if len(source) == 1 else source
    if not sizes or [len(size) for size in sizes] != [len(array.dimensions) for array in arrays]:
        raise instruction.refuse(unknown(f"slices of {source} spelled as slice_sizes={spelled}"), start)
    return tuple(Shape(array.dtype, size) for array, size in zip(arrays, sizes, strict=True))


def _check_result(written: Written) -> None:
    """The result's shapes must agree with those of the operands."""
    instruction, count = written.instruction, len(written.shapes)
    results = instruction.shapes
    if written.operation not in _GROUPED:
        if instruction.opcode in _KEEPERS and "slice_sizes" not in instruction.attributes:
            _check_kept(written, results)
        return
    if instruction.opcode.endswith("-start") and len(results) > count:
        results = results[count : 2 * count]  # the operands come before, arrays of the backend's own may follow
    if len(results) != count:
        raise instruction.refuse(unknown(f"{instruction.opcode} of {count} arrays has {len(results)} results"))
    for shape, result in zip(written.shapes, results, strict=True):
        larger, smaller = (result, shape) if written.operation == "all-gather" else (shape, result)
        factor = 1 if written.operation == "all-reduce" else written.group_size
        # TPU reduces f32 and writes bf16 in one all-reduce: what moves is the operand, as its reducer's type shows.
        converts = written.operation == "all-reduce"
        if larger.elements != smaller.elements * factor or not (converts or larger.dtype == smaller.dtype):
            problem = f"{written.operation} over {written.group_size} positions turns {shape} into {result}"
            raise instruction.refuse(unknown(problem))


def _check_kept(written: Written, results: tuple[Shape, ...]) -> None:
    """An all-to-all or a permute returns as many elements as it was given."""
    given, taken = (sum(shape.elements for shape in shapes) for shapes in (written.shapes, results))
    if given != taken:
        problem = f"{written.operation} turns {given:,} elements into {taken:,}"
        raise written.instruction.refuse(unknown(problem))
