"""A strict, linear parser of compiled HLO text: modules, computations, instructions.

It reads what `jax.stages.Compiled.as_text()` prints for CPU, GPU and TPU. Each line is matched once and lightly;
operands, attributes and shapes are read only where somebody asks for them. What the structure does not allow (an open
computation, text outside one, a missing entry) is an `HloError`; attributes, layouts and opcodes it does not know are
kept and passed over, for it is the census that decides what matters.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from meshproof.hlo.errors import HloError, unknown
from meshproof.hlo.shapes import Shape, read_count, read_shapes

_ARRAY_TYPED = re.compile(r"\s+(ROOT )?%?(\S+) = ([^\s(]\S*) ([a-z][a-z0-9-]*)\(")
_TUPLE_TYPED = re.compile(r"\s+(ROOT )?%?(\S+) = \(")
_STARTS_SOMETHING = re.compile(r"\}|\s+(?:ROOT )?%?\S+ = (?:\(|[a-z][a-z0-9]*\[)")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_OPCODE = re.compile(r"([a-z][a-z0-9-]*)\(")
_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[()\[\]{},]')
_COMMENT = re.compile(r"/\*.*?\*/")
_TABLE_HEADING = re.compile(r"[A-Z][A-Za-z]*$")
_TABLE_ROW = re.compile(r"\d+ ")
_STABLEHLO = re.compile(r"\s*(?:#\w+ = |module\b|func\.func|builtin\.module)|stablehlo\.|mhlo\.")


class Instruction(NamedTuple):
    """One instruction as printed. `text` is its whole line; the numbers are offsets into it."""

    name: str
    opcode: str
    text: str
    line: int
    type_start: int
    type_end: int
    operands_start: int
    is_root: bool

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays of the result, tuples flattened."""
        return read_shapes(self.type_text, self.line, self.type_start + 1, self.text)

    @property
    def type_text(self) -> str:
        """The result's type as printed, layouts included."""
        return self.text[self.type_start : self.type_end]

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, in order; for a constant or a parameter, its literal."""
        return read_operands(self)[0]

    @property
    def attributes(self) -> dict[str, tuple[str, int]]:
        """`name=value` pairs after the operands: each value and its offset in `text`."""
        return read_attributes(self)

    def refuse(self, problem: str, offset: int | None = None) -> HloError:
        """An error that points into this line, at the opcode unless told otherwise."""
        column = (self.type_end + 1 if offset is None else offset) + 1
        return HloError(problem, self.line, column, self.text)


@dataclass(frozen=True)
class Computation:
    """A named body: its instructions as printed (scheduled text: in the order they run) and its root."""

    name: str
    is_entry: bool
    instructions: tuple[Instruction, ...]
    root: Instruction
    line: int


@dataclass(frozen=True)
class Module:
    """A compiled program: header attributes as printed, computations by name, and the one that runs."""

    name: str
    attributes: dict[str, str]
    computations: dict[str, Computation]
    entry: Computation

    @property
    def replica_count(self) -> int:
        """Replicas of the program; 1 where the header is silent."""
        return read_count(self.attributes, "replica_count")

    @property
    def num_partitions(self) -> int:
        """Devices one replica is partitioned over; 1 where the header is silent."""
        return read_count(self.attributes, "num_partitions")

    @property
    def is_scheduled(self) -> bool:
        """Whether instructions stand in the order they run."""
        return self.attributes.get("is_scheduled") == "true"


def parse(text: str) -> Module:
    """Parse compiled HLO text. Raises `HloError` with line and column where the text is not a whole module."""
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    first, name, attributes = _read_header(lines)
    computations: dict[str, Computation] = {}
    entry: Computation | None = None
    number = first
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line or line.isspace():
            continue
        if not line.endswith("{") or line[0].isspace():
            _skip_table(line, number, inside_tables=not computations, is_last=number == len(lines))
            continue
        computation, number = _read_computation(lines, number)
        if computation.name in computations:
            problem = f"computation {computation.name} is defined twice; expected one module's text"
            raise HloError(problem, computation.line, 1, line)
        computations[computation.name] = computation
        if computation.is_entry:
            if entry is not None:
                raise HloError("a second ENTRY computation; expected one module's text", computation.line, 1, line)
            entry = computation
    if entry is None:
        problem = "no ENTRY computation: the text is truncated; expected a whole module from compiled.as_text()"
        raise HloError(problem, len(lines), 1, lines[-1])
    return Module(name, attributes, computations, entry)


def _read_header(lines: list[str]) -> tuple[int, str, dict[str, str]]:
    """The HloModule line (it may run over several lines), and the index of the line after it."""
    wanted = "expected compiled HLO text, as compiled.as_text() prints it, starting with 'HloModule'"
    first = next((index for index, line in enumerate(lines) if line and not line.isspace()), None)
    if first is None:
        raise HloError(f"empty text; {wanted}")
    if not lines[first].startswith("HloModule "):
        lowered = any(_STABLEHLO.search(line) for line in lines[first : first + 50])
        kind = "this is StableHLO (lowered, not yet compiled)" if lowered else "this is not HLO"
        raise HloError(f"{kind}; {wanted}. Call .compile() before .as_text()", first + 1, 1, lines[first])
    header, after = lines[first], first + 1
    if _is_open(header):  # tables in the header run over several lines, to the blank one that ends it
        after = next((index for index in range(after, len(lines)) if not lines[index].strip()), len(lines))
        header = "\n".join(lines[first:after])
    if _is_open(header):
        raise HloError("unbalanced brackets in the module header: the text is truncated", first + 1, 1, lines[first])
    parts = [header[start:end].strip() for start, end in split(header, len("HloModule "))[0]]
    pairs = (part.partition("=") for part in parts[1:])
    return after, parts[0], {key: value for key, _, value in pairs}


def _is_open(text: str) -> bool:
    """Does a bracket or a string of this text end only in a later line?"""
    bare = _STRING.sub("", text)
    return '"' in bare or sum(map(bare.count, "([{")) > sum(map(bare.count, ")]}"))


def _skip_table(line: str, number: int, inside_tables: bool, is_last: bool) -> None:
    """Tables of source locations stand between the header and the first computation; nothing else may."""
    if inside_tables and (_TABLE_ROW.match(line) or _TABLE_HEADING.match(line)):
        return
    where = "outside of any computation" if not inside_tables else "between the module header and the computations"
    if is_last and line[0] in "%E":
        raise HloError("the text ends inside a line: it is truncated; expected a whole module", number, len(line), line)
    problem = f"unexpected text {where}; expected '%name (…) -> … {{' or 'ENTRY …'"
    raise HloError(unknown(problem), number, 1, line)


def _read_computation(lines: list[str], number: int) -> tuple[Computation, int]:
    """The computation whose header is line `number` (1-based), and the number of its closing line."""
    header = lines[number - 1]
    words = header.split(None, 2)
    is_entry = words[0] == "ENTRY"
    name = words[1 if is_entry else 0].removeprefix("%")
    opened = number
    instructions: list[Instruction] = []
    root: Instruction | None = None
    append = instructions.append
    array_typed = _ARRAY_TYPED.match
    total = len(lines)
    while number < total:
        line = lines[number]
        number += 1
        match = array_typed(line)
        if match is not None:
            rooted, named, _, opcode = match.groups()
            start, end = match.span(3)
            append(Instruction(named, opcode, line, number, start, end, match.end(), rooted is not None))
            if rooted is not None:
                root = _only_root(root, instructions[-1])
            continue
        if line.startswith("}"):
            if line != "}" and not line.startswith("}, "):
                raise HloError(unknown("text after the end of a computation; expected '}'"), number, 2, line)
            if root is None:
                raise HloError(f"computation {name} has no ROOT instruction", number, 1, header)
            return Computation(name, is_entry, tuple(instructions), root, opened), number
        if not line or line.isspace():
            continue
        if number == total:
            break
        instruction = _read_tuple_typed(line, number)
        if instruction is None:
            if not instructions:
                raise HloError(_not_an_instruction(), number, 1, line)
            instructions[-1], number = _continue(instructions[-1], lines, number)
            continue
        append(instruction)
        if instruction.is_root:
            root = _only_root(root, instruction)
    problem = f"the text ends inside computation {name}, opened in line {opened}: it is truncated; expected '}}'"
    raise HloError(problem, total, 1, lines[-1])


def _only_root(before: Instruction | None, found: Instruction) -> Instruction:
    if before is not None:
        raise HloError(
            f"a second ROOT in one computation (the first is in line {before.line})", found.line, 1, found.text
        )
    return found


def _read_tuple_typed(line: str, number: int) -> Instruction | None:
    match = _TUPLE_TYPED.match(line)
    if match is None:
        return None
    # No tuple type contains ') ': an inner tuple is followed by a comma, a tile by a brace.
    end = line.find(") ", match.end() - 1) + 1
    opcode = _OPCODE.match(line, end + 1) if end else None
    if opcode is None:
        raise HloError(unknown("expected an opcode and '(' after the type"), number, match.end(), line)
    rooted, named = match.groups()
    return Instruction(named, opcode[1], line, number, match.end() - 1, end, opcode.end(), rooted is not None)


def _continue(before: Instruction, lines: list[str], number: int) -> tuple[Instruction, int]:
    """Text that runs over several lines, as a string or a literal may, belongs to the instruction before it."""
    first = number
    while number < len(lines) and not _STARTS_SOMETHING.match(lines[number]):
        number += 1
    text = "\n".join((before.text, *lines[first - 1 : number]))
    if before.line != first - 1 or not _is_open(before.text) or _is_open(text):
        raise HloError(_not_an_instruction(), first, 1, lines[first - 1])
    return before._replace(text=text), number


def _not_an_instruction() -> str:
    return unknown("not an instruction; expected '%name = type opcode(operands), …' or '}'")


def split(text: str, start: int) -> tuple[list[tuple[int, int]], int]:
    """Spans between commas outside brackets and strings, from `start` to the bracket that closes it (or the end)."""
    spans = []
    depth = 0
    begin = start
    for mark in _MARK.finditer(text, start):
        at = mark.start()
        character = text[at]
        if character == "," and depth == 0:
            spans.append((begin, at))
            begin = at + 1
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                return [*spans, (begin, at)], at
    return [*spans, (begin, len(text))], len(text)


def read_operands(instruction: Instruction) -> tuple[tuple[str, ...], int]:
    """Operand names, and the offset of the closing parenthesis. Operands printed with their types are accepted."""
    text, start = instruction.text, instruction.operands_start
    end = text.find(")", start)
    plain = text[start:end]
    if end < 0 or "(" in plain or "{" in plain or '"' in plain:
        spans, end = split(text, start)
        if end >= len(text):
            raise instruction.refuse("unbalanced brackets: the line is cut off", start)
        parts = (_COMMENT.sub("", text[a:b]).strip() for a, b in spans)
        return tuple(part.rpartition(" ")[2].removeprefix("%") for part in parts if part), end
    if "/*" in plain:
        plain = _COMMENT.sub("", plain)
    return tuple(plain.replace("%", "").split(", ")) if plain else (), end


def read_attributes(instruction: Instruction) -> dict[str, tuple[str, int]]:
    """Attributes after the operands, with the offset of each value. Values are not interpreted."""
    text = instruction.text
    found: dict[str, tuple[str, int]] = {}
    start = read_operands(instruction)[1] + 1
    spans, end = split(text, start)
    if end < len(text):
        raise instruction.refuse("unbalanced brackets after the operands", end)
    for begin, stop in spans:
        key, equals, value = text[begin:stop].partition("=")
        if equals:
            found[key.strip()] = (value, stop - len(value))
    return found
