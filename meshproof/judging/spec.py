"""SPEC.md: every clause, from the docstrings of the tests that judge it. The suites are parsed, not imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TypeAlias

COMMAND = "meshproof spec"

GROUPS = {
    "NUM": "Numbers",
    "SHD": "Layout",
    "COM": "Communication",
    "MEM": "Memory",
    "CMP": "Compilation",
    "FLG": "Compiler flags",
    "PIP": "Pipelines",
    "ROO": "Rooflines",
    "ERR": "Errors",
    "ACC": "Gradient accumulation",
    "MIX": "Mixed precision",
    "MSK": "Masked batches",
    "AUX": "Auxiliary state",
    "CKP": "Checkpoints",
    "MPR": "Several processes",
    "DAT": "Data",
    "OPS": "Operations",
    "API": "Interfaces",
    "RUN": "The run itself",
}
"""The heading of each group of clauses, in the order of the document."""

HEAD = f"""\
# What must hold

Generated from the clause markers in `suites/` by `{COMMAND}`: change the docstring of the test, then run that.

MUST and MUST NOT are to be read as in RFC 2119. The first sentence of a statement is the requirement; conditions and
details follow it. A clause is judged on every strategy and mesh that it can apply to.
"""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class SpecError(Exception):
    """The suites do not make a specification; the message names every test at fault."""


@dataclass(frozen=True)
class Clause:
    """A clause as one of its tests states it. ``test`` is the pytest node id without parameters."""

    id: str
    statement: str
    test: str

    @property
    def key(self) -> tuple[int, int]:
        """The clause's place in the document. Raises `SpecError` if its group or number is unknown."""
        group, _, number = self.id.partition("-")
        if group not in GROUPS or not number.isdecimal():
            raise SpecError(f"{self.test}: no group of {self.id!r}; expected a number after {', '.join(GROUPS)}")
        return list(GROUPS).index(group), int(number)


def render_spec(checkout: Path) -> str:
    """The text of SPEC.md for the suites of a checkout. Raises `SpecError`."""
    lines, last = [HEAD], ""
    for clause in read_clauses(checkout):
        group = clause.id.partition("-")[0]
        if not last.startswith(f"{group}-"):
            lines.append(f"## {GROUPS[group]} ({group})\n")
        if clause.id != last:
            lines.append(f"### {clause.id}\n")
        lines.append(f"{clause.statement}\n— [`{clause.test}`]({clause.test.partition('::')[0]})\n")
        last = clause.id
    return "\n".join(lines)


def read_clauses(checkout: Path = Path()) -> list[Clause]:
    """The clauses of every suite, one entry per clause and test, in the order of the document.

    Raises `SpecError` if a test lacks a clause or a docstring, or if there are no suites.
    """
    paths = sorted(checkout.glob("suites/**/test_*.py"))
    if not paths:
        raise SpecError(f"no suites/test_*.py in {checkout.absolute()}: run this in a checkout of Meshproof")
    clauses: list[Clause] = []
    problems: list[str] = []
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for name, function in _tests(tree.body, path.relative_to(checkout).as_posix()):
            ids, statement = list(_ids(function)), _first_paragraph(function)
            clauses += [Clause(clause_id, statement, name) for clause_id in ids]
            if not ids:
                problems.append(f'{name} has no clause: mark it @pytest.mark.clause("NUM-1")')
            if not statement:
                problems.append(f"{name} has no docstring: say in its first paragraph what MUST hold")
    if problems:
        raise SpecError("; ".join(problems))
    return sorted(clauses, key=lambda clause: clause.key)


def _tests(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function) and node.name.startswith("test"):
            yield f"{prefix}::{node.name}", node
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body, f"{prefix}::{node.name}")


def _ids(function: Function) -> Iterator[str]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="clause"), args=[ast.Constant(value=str(clause_id)), *_]):
                yield clause_id


def _first_paragraph(function: Function) -> str:
    docstring = cleandoc(ast.get_docstring(function) or "")
    return " ".join(docstring.partition("\n\n")[0].split())
