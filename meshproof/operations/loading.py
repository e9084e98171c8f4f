"""Reads a table of operations: a module, by its dotted name or its file."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from meshproof.operations import Operation
from meshproof.operations.growing import GrowingProgram
from meshproof.operations.stacked.observing import StackedCase
from meshproof.operations.transforms import TransformFamily

OWN = "meshproof.operations.table"
"""The table of Meshproof itself."""

MEMBERS: dict[str, Any] = {
    "operations": Operation,
    "transforms": TransformFamily,
    "programs": GrowingProgram,
    "stacked_layers": StackedCase,
}
NAME = re.compile(r"[a-z][a-z0-9_]*")


class TableError(ValueError):
    """A table cannot be used; the message says why."""


@dataclass(frozen=True)
class Table:
    """What a table lists, by id."""

    operations: dict[str, Operation]
    transforms: dict[str, TransformFamily]
    programs: dict[str, GrowingProgram]
    stacked_layers: dict[str, StackedCase]


def load_table(source: str) -> Table:
    """The table of a module, such as ``my_ops.py`` or ``my_package.operations``. Raises `TableError`."""
    if not source:
        return Table({}, {}, {}, {})
    try:
        module = import_table(source)
        listed = {name: list(getattr(module, name)()) for name in MEMBERS if hasattr(module, name)}
    except Exception as error:
        raise TableError(f"--operations {source}: {type(error).__name__}: {error}") from error
    if not any(listed.values()):
        expected = " or ".join(f"{member}()" for member in MEMBERS)
        raise TableError(f"--operations {source}: no {expected} that lists any")
    return Table(**{name: by_id(source, name, listed.get(name, [])) for name in MEMBERS})


def import_table(source: str) -> ModuleType:
    """The module of a file or of a dotted name."""
    if not source.endswith(".py"):
        return importlib.import_module(source)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"expected a file {path.absolute()}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_id(source: str, member: str, listed: Iterable[Any]) -> dict[str, Any]:
    """What a member lists, by id; refused are other types, names that no person can type, and names given twice."""
    found: dict[str, Any] = {}
    for each in listed:
        if not isinstance(each, MEMBERS[member]):
            raise TableError(f"--operations {source}: {member}() lists {each!r}, expected {MEMBERS[member].__name__}s")
        if isinstance(each, Operation) and not NAME.fullmatch(each.name):
            raise TableError(f"--operations {source}: an operation is named {each.name!r}, expected the like of my_op2")
        if isinstance(each, Operation) and not each.operands:
            raise TableError(f"--operations {source}: {each.name} takes no operand; layouts are those of operands")
        if each.id in found:
            raise TableError(f"--operations {source}: two are named {each.id}; give one of them another name")
        found[each.id] = each
    return found
