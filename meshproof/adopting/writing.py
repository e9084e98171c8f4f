"""The Python module that `meshproof adopt` writes: an adapter around a user's trainer, with its contract."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from meshproof.adopting.adapter import spelled_spec
from meshproof.adopting.contracts import Adoption
from meshproof.adopting.questions import Question
from meshproof.contract import Communication, Contract

WIDTH = 120
LAYOUTS = ("parameters", "gradients", "optimizer_state", "auxiliary", "batch", "batch_in_step", "computed")
FLAGS = (
    "device_dimension",
    "microbatches",
    "evaluations",
    "mask",
    "compute_dtype",
    "quantised",
    "dtypes",
    "rematerialises",
)


def render(adoption: Adoption, module: str) -> str:
    """The module's source; ``module`` is the name under which it will be imported."""
    adapter = adoption.adapter
    about = f"{adapter.module}:{adapter.trainer}"
    command = f"meshproof check --impl {module}"
    beside = [question for question in adoption.questions if question.about in ("train_step", "init")]
    imports = {*adapter.imports, "from jax.sharding import PartitionSpec as P", "import jax"}
    own = "\n".join(each for each in _sorted(imports) if _used(each, adapter.source()) or " as P" in each)
    trees = sorted(each.split()[-1] for each in imports if "meshproof.adopting" in each)
    adopted = [f"from meshproof.adopting.trees import {', '.join(trees)}"] if trees else []
    adopted += [f"from meshproof.contract import {', '.join(_needed(adoption.contract))}"]
    return "\n".join(
        [
            f'"""``{about}`` with its contract, as ``meshproof adopt`` saw it.',
            "",
            f"    $ {command}",
            '"""',
            "",
            *_standard(imports),
            "",
            own,
            adapter.imported,
            "",
            *adopted,
            "",
            *_contract(adoption.contract, adoption.questions),
            "",
            "",
            *comments(beside, ""),
            adapter.source(),
        ]
    )


def _standard(imports: Iterable[str]) -> list[str]:
    return [
        "from functools import cached_property",
        *sorted(each for each in imports if each.startswith("from itertools")),
    ]


def _sorted(imports: Iterable[str]) -> list[str]:
    """The imports of others' packages, as isort has them."""
    others = [each for each in imports if "meshproof" not in each and "itertools" not in each]
    merged: dict[str, set[str]] = {}
    for each in others:
        if each.startswith("from "):
            home, _, names = each.removeprefix("from ").partition(" import ")
            merged.setdefault(home, set()).update(names.split(", "))
    plain = sorted(each for each in others if each.startswith("import "))
    return plain + [f"from {home} import {', '.join(sorted(names))}" for home, names in sorted(merged.items())]


def _used(line: str, source: str) -> bool:
    return any(name in source for name in (("jax.",) if line == "import jax" else (line.split()[-1],)))


def _needed(contract: Contract) -> list[str]:
    return [*(["Communication"] if contract.forward or contract.step else []), "Contract"]


def _contract(contract: Contract, questions: Sequence[Question]) -> Iterator[str]:
    """``CONTRACT = Contract(…)``, each question above the field that it is about."""
    plain = Contract()
    yield "CONTRACT = Contract("
    for field in (*LAYOUTS, "forward", "step", *FLAGS):
        value = getattr(contract, field)
        yield from comments([question for question in questions if question.about == field], "    ")
        if value == getattr(plain, field):
            continue
        if field in LAYOUTS:
            yield from _entries(
                f"    {field}={{", [f"{json.dumps(p)}: {spelled_spec(s)}" for p, s in value.items()], "}"
            )
        elif field in ("forward", "step"):
            comma = "," if len(value) == 1 else ""
            yield from _entries(f"    {field}=(", [communication(line) for line in value], f"{comma})")
        else:
            yield f"    {field}={spelled(value)},"
    yield ")"


def spelled(value: Any) -> str:
    """A flag in Python, its strings between double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(json.dumps, value))}{',' if len(value) == 1 else ''})"
    return json.dumps(value) if isinstance(value, str | dict) else str(value)


def _entries(head: str, entries: list[str], tail: str) -> Iterator[str]:
    line = f"{head}{', '.join(entries)}{tail},"
    if len(line) <= WIDTH and (len(entries) < 2 or "Communication" not in line):
        yield line
        return
    yield head
    yield from (f"        {entry}," for entry in entries)
    yield f"    {tail.removeprefix(',')},"


def communication(line: Communication) -> str:
    """A line of a budget as source."""
    axes = ", ".join(json.dumps(axis) for axis in line.axes)
    size = f"{line.bytes:_}" if line.bytes >= 10_000 else str(line.bytes)
    comma = "," if len(line.axes) == 1 else ""
    within = f', dtype="{line.dtype}"' if line.dtype else ""
    return f'Communication("{line.operation}", ({axes}{comma}), "{line.payload}", {size}{within})'


def comments(questions: Iterable[Question], indent: str) -> Iterator[str]:
    """Questions as comments."""
    for question in questions:
        yield from textwrap.wrap(
            question.text,
            WIDTH,
            initial_indent=f"{indent}# ? ",
            subsequent_indent=f"{indent}#   ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def changes(before: str, after: str) -> list[str]:
    """The lines that differ, of the file as it is and as it would be written now."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "as it stands", "as seen now", n=0, lineterm=""
    )
    return list(lines)
