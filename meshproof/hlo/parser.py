"""A strict, linear parser of compiled HLO text: modules, computations, instructions.

It reads what `jax.stages.Compiled.as_text()` prints for CPU, GPU and TPU. Each line is matched once and lightly;
operands, attributes and shapes are read only where somebody asks for them. What the structure does not allow (an open
computation, text outside one, a missing entry) is an `HloError`; attributes, layouts and opcodes it does not know are
kept and passed over: the census decides what matters.
"""

import re
from sys import intern

from meshproof.hlo.errors import HloError, unknown
from meshproof.hlo.lexing import is_open, split
from meshproof.hlo.module import Computation, Instruction, Module

_ARRAY_TYPED = re.compile(r"\s+(ROOT )?%?(\S+) = ([^\s(]\S*) ([a-z][a-z0-9-]*)\(")
_TUPLE_TYPED = re.compile(r"\s+(ROOT )?%?(\S+) = \(")
_STARTS_SOMETHING = re.compile(r"\}|\s+(?:ROOT )?%?\S+ = (?:\(|[a-z][a-z0-9]*\[)")
_OPCODE = re.compile(r"([a-z][a-z0-9-]*)\(")
_TABLE_HEADING = re.compile(r"[A-Z][A-Za-z]*$")
_TABLE_ROW = re.compile(r"\d+ ")
_STABLEHLO = re.compile(r"\s*(?:#\w+ = |module\b|func\.func|builtin\.module)|stablehlo\.|mhlo\.")


def parse(text: str) -> Module:
    """Parse compiled HLO text. Raises `HloError` with line and column where the text is not a whole module."""
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    module, number = _read_header(lines)
    entry: Computation | None = None
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line or line.isspace():
            continue
        if not line.endswith("{") or line[0].isspace():
            _skip_table(line, number, inside_tables=not module.computations, is_last=number == len(lines))
            continue
        words = line.split(None, 2)
        is_entry = words[0] == "ENTRY"
        computation = Computation(module, words[1 if is_entry else 0].removeprefix("%"), is_entry, number)
        number = _read_body(computation, lines)
        if computation.name in module.computations:
            problem = f"computation {computation.name} is defined twice; expected one module's text"
            raise HloError(problem, computation.line, 1, line)
        module.computations[computation.name] = computation
        if is_entry:
            if entry is not None:
                raise HloError("a second ENTRY computation; expected one module's text", computation.line, 1, line)
            entry = computation
    if entry is None:
        problem = "no ENTRY computation: the text is truncated; expected a whole module from compiled.as_text()"
        raise HloError(problem, len(lines), 1, lines[-1])
    module.entry = entry
    return module


def _read_header(lines: list[str]) -> tuple[Module, int]:
    """A module of what the HloModule line says (it may run over several lines), and the index of the line after it."""
    wanted = "expected compiled HLO text, as compiled.as_text() prints it, starting with 'HloModule'"
    first = next((index for index, line in enumerate(lines) if line and not line.isspace()), None)
    if first is None:
        raise HloError(f"empty text; {wanted}")
    if not lines[first].startswith("HloModule "):
        lowered = any(_STABLEHLO.search(line) for line in lines[first : first + 50])
        kind = "this is StableHLO (lowered, not yet compiled)" if lowered else "this is not HLO"
        raise HloError(f"{kind}; {wanted}. Call .compile() before .as_text()", first + 1, 1, lines[first])
    header, after = lines[first], first + 1
    if is_open(header):  # tables in the header run over several lines, to the blank one that ends it
        after = next((index for index in range(after, len(lines)) if not lines[index].strip()), len(lines))
        header = "\n".join(lines[first:after])
    if is_open(header):
        raise HloError("unbalanced brackets in the module header: the text is truncated", first + 1, 1, lines[first])
    parts = [header[start:end].strip() for start, end in split(header, len("HloModule "))[0]]
    pairs = (part.partition("=") for part in parts[1:])
    return Module(parts[0], {key: value for key, _, value in pairs}), after


def _skip_table(line: str, number: int, inside_tables: bool, is_last: bool) -> None:
    """Tables of source locations stand between the header and the first computation; nothing else may."""
    if inside_tables and (_TABLE_ROW.match(line) or _TABLE_HEADING.match(line)):
        return
    where = "outside of any computation" if not inside_tables else "between the module header and the computations"
    if is_last and line[0] in "%E":
        raise HloError("the text ends inside a line: it is truncated; expected a whole module", number, len(line), line)
    problem = f"unexpected text {where}; expected '%name (…) -> … {{' or 'ENTRY …'"
    raise HloError(unknown(problem), number, 1, line)


def _read_body(computation: Computation, lines: list[str]) -> int:
    """Read the instructions and the root of a computation. Returns the number of its closing line."""
    name, by_name = computation.name, computation.by_name
    root: Instruction | None = None
    array_typed = _ARRAY_TYPED.match
    number, total = computation.line, len(lines)
    while number < total:
        line = lines[number]
        number += 1
        match = array_typed(line)
        if match is not None:
            rooted, named, _, opcode = match.groups()
            start, end = match.span(3)
            opcode = intern(opcode)  # a long text has few
            found = Instruction(computation, named, opcode, line, number, start, end, match.end(), rooted is not None)
        elif line.startswith("}"):
            if line != "}" and not line.startswith("}, "):
                raise HloError(unknown("text after the end of a computation; expected '}'"), number, 2, line)
            if root is None:
                raise HloError(f"computation {name} has no ROOT instruction", number, 1, lines[computation.line - 1])
            computation.root = root
            return number
        elif not line or line.isspace():
            continue
        elif number == total:
            break
        elif (match := _TUPLE_TYPED.match(line)) is not None:
            found = _read_tuple_typed(computation, match, number)
        else:
            number = _continue(computation, lines, number)
            continue
        if found.name in by_name:
            raise found.refuse(f"computation {name} defines {found.name} twice")
        by_name[found.name] = found
        if found.is_root:
            if root is not None:
                raise HloError(f"a second ROOT in one computation (the first is in line {root.line})", number, 1, line)
            root = found
    problem = f"the text ends inside computation {name}, opened in line {computation.line}: it is truncated"
    raise HloError(f"{problem}; expected '}}'", total, 1, lines[-1])


def _read_tuple_typed(computation: Computation, match: re.Match[str], number: int) -> Instruction:
    line = match.string
    # No tuple type contains ') ': an inner tuple is followed by a comma, a tile by a brace.
    end = line.find(") ", match.end() - 1) + 1
    opcode = _OPCODE.match(line, end + 1) if end else None
    if opcode is None:
        raise HloError(unknown("expected an opcode and '(' after the type"), number, match.end(), line)
    rooted, name = match.groups()
    start = match.end() - 1
    return Instruction(computation, name, opcode[1], line, number, start, end, opcode.end(), rooted is not None)


def _continue(computation: Computation, lines: list[str], number: int) -> int:
    """Text that runs over several lines, as a string or a literal may, belongs to the instruction before it."""
    before = next(reversed(computation.by_name.values()), None)
    first = number
    while number < len(lines) and not _STARTS_SOMETHING.match(lines[number]):
        number += 1
    text = "\n".join((before.text if before is not None else "", *lines[first - 1 : number]))
    if before is None or before.line != first - 1 or not is_open(before.text) or is_open(text):
        problem = "not an instruction; expected '%name = type opcode(operands), …' or '}'"
        raise HloError(unknown(problem), first, 1, lines[first - 1])
    before.text = text
    return number
