"""``python -m tests.adopted docs/adopt.md``: what `meshproof adopt` makes of the book's pages, and of planted faults.

Each strategy is adopted without its contract, or also without `loss` and `gradients`: from its step alone. What is
written must be what the page says. Of a fault whose clauses judge what can be seen once, a question must be asked
in a word of one of these clauses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax

from meshproof.adopting.adapter import AdoptError
from meshproof.adopting.contracts import Adoption, adopt
from meshproof.adopting.members import adapt
from meshproof.adopting.seeing import see
from meshproof.cases import case_id, spelled
from meshproof.contract import Contract, leaves
from meshproof.files import insert, replace_text

FLAGS = ("device_dimension", "microbatches", "evaluations", "mask", "compute_dtype", "rematerialises")


class Stripped:
    """A strategy that promises nothing, and lacks some members."""

    def __init__(self, strategy: Any, hidden: tuple[str, ...]) -> None:
        self._strategy, self._hidden = strategy, ("contract", *hidden)

    def __getattr__(self, member: str) -> Any:
        if member in self._hidden or member.startswith("__"):
            raise AttributeError(member)
        return getattr(self._strategy, member)


@cache
def subjects() -> dict[str, Any]:
    """The book's strategies and the planted ones by case."""
    import reference_impl
    from tests import saboteurs

    return {case_id(each): each for each in (*reference_impl.strategies(), *saboteurs.strategies())}


HIDDEN = {"case": (), "step": ("loss", "gradients", "unchecked_gradients")}
"""What a strategy lacks beside its contract, by the word that its module has for it."""


def __getattr__(name: str) -> Any:
    """A strategy without its contract, by the number of its case: what an adapter imports."""
    kind, _, number = name.partition("_")
    if kind not in HIDDEN:
        raise AttributeError(name)
    return Stripped(list(subjects().values())[int(number)], HIDDEN[kind])


def adopted(case: str, kind: str = "case") -> Adoption:
    """What is written of a case."""
    found = adopt(see(adapt(f"tests.adopted:{kind}_{list(subjects()).index(case)}")))
    jax.clear_caches()
    return found


def differences(found: Contract, said: Contract, strategy: Any) -> Iterator[str]:
    """How a contract that was written differs from that of the page."""
    mesh = strategy.mesh_axes
    paths = dict.fromkeys(path for path, _ in leaves(strategy.logical_axes))
    for part in ("parameters", "gradients", "computed"):
        one, other = getattr(found, part), getattr(said, part)
        if one is None or other is None:
            if part != "computed":
                yield f"{part} not written"
            continue
        for path in paths:
            if spec(found.spec(part, path), mesh) != spec(said.spec(part, path), mesh):
                yield f"{part} {path}: {found.spec(part, path)}, page {said.spec(part, path)}"
    for part in ("optimizer_state", "batch"):
        if getattr(found, part) is None:
            yield f"{part} not written"
            continue
        for path in getattr(said, part):
            if spec(found.spec(part, path), mesh) != spec(said.spec(part, path), mesh):
                yield f"{part} {path}: {found.spec(part, path)}, page {said.spec(part, path)}"
    for part in ("forward", "step"):
        one, other = (sorted(map(str, spelled(open_types(each, part), mesh) or ())) for each in (found, said))
        if one != other:
            yield f"{part}: {sorted(set(one) - set(other))}, page {sorted(set(other) - set(one))}"
    for flag in FLAGS:
        if getattr(found, flag) != getattr(said, flag):
            yield f"{flag}: {getattr(found, flag)}, page {getattr(said, flag)}"


def open_types(contract: Contract, part: str) -> tuple[Any, ...] | None:
    """A budget; where all is computed in float32, that a line moves in it says nothing."""
    budget = getattr(contract, part)
    if contract.compute_dtype != "float32" or budget is None:
        return budget
    return tuple(replace(line, dtype=None) for line in budget)


def spec(declared: Any, mesh: dict[str, int]) -> tuple[Any, ...]:
    """A layout without axes of one device and without whole dimensions at its end."""
    entries = [
        tuple(axis for axis in ((entry,) if isinstance(entry, str) else entry or ()) if mesh[axis] > 1)
        for entry in declared
    ]
    while entries and not entries[-1]:
        entries.pop()
    return tuple(entries)


def pages(kind: str) -> str:
    """The book's strategies: how many of their cases are written as their page has them, and the first that is not."""
    import reference_impl

    rows: dict[str, dict[str, str]] = {}
    for strategy in reference_impl.strategies():
        case = case_id(strategy)
        different = agrees(case, strategy, kind)
        rows.setdefault(strategy.name, {})[case] = different
        print(case, different or "agrees", flush=True)
    lines = ["| page | cases | agree | where not |", "|---|---|---|---|"]
    for name, found in rows.items():
        odd = [f"`{case}`: {different}" for case, different in found.items() if different]
        lines.append(f"| `{name}` | {len(found)} | {len(found) - len(odd)} | {'<br>'.join(odd)} |")
    every = [different for found in rows.values() for different in found.values()]
    return "\n".join([*lines, f"| all | {len(every)} | {every.count('')} | |"])


def agrees(case: str, strategy: Any, kind: str) -> str:
    """Nothing where what is written is what the page has; else the first difference."""
    try:
        found = adopted(case, kind).contract
    except AdoptError as error:
        return str(error).splitlines()[0]
    if kind == "step":
        found = replace(found, forward=strategy.contract.forward)
    return next(differences(found, strategy.contract, strategy), "")


def faults() -> str:
    """The planted faults: the first question that is asked in a word of a clause that catches it."""
    from tests.saboteurs import CAUGHT_BY

    lines, right, tried = ["| fault | caught by | asked |", "|---|---|---|"], 0, 0
    for case, clauses in CAUGHT_BY.items():
        seen = sorted(clauses & WORDS.keys())
        if not seen or case.startswith(OF_CONTRACTS):
            continue
        asked = list(questions(case))
        words = [word for clause in seen for word in WORDS[clause]]
        fitting = [text for text in asked if any(word in text for word in words) and HINT not in text]
        told = fitting[0].removesuffix(": intended?") if fitting else "–"
        right, tried = right + bool(fitting), tried + 1
        print(case, seen, told, flush=True)
        lines.append(f"| `{case}` | {', '.join(seen)} | {told} |")
    return "\n".join([*lines, f"| {tried} | | {right} |"])


def questions(case: str) -> Iterator[str]:
    """What is asked of a case, or why it is refused."""
    try:
        yield from (question.text for question in adopted(case).questions)
    except AdoptError as error:
        yield str(error).partition(":")[0]


TRAFFIC = (
    "gradients of",
    "every gradient is reduced",
    "shards of",
    "activations",
    " moves ",
    "gathered over",
    "copies on several",
)
LAYOUT = ("replicated over", "every device holds", "placed as", "the step leaves", "shards hold other")
WORDS = {
    **{f"COM-{number}": TRAFFIC for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 11)},
    **{f"SHD-{number}": LAYOUT for number in (1, 2, 3, 4, 5)},
    "MEM-1": LAYOUT,
    "MEM-2": ("donates",),
    "MEM-3": ("while it runs",),
    "CMP-1": ("compiles again",),
    "CMP-2": ("host", "promoted implicitly"),
    "MIX-2": ("bf16", "bfloat16", "reduce-precision", "f8", "f16"),
    "NUM-5": ("two runs of the same",),
    "NUM-6": ("copies on several devices differ",),
    "NUM-10": ("not finite",),
}
"""The words of a question that is about what a clause judges."""

HINT = "over model, which splits smaller leaves"
"""What the book's own tensor-parallel pages are asked, too."""

OF_CONTRACTS = ("crash", "nothing_shown", "experts_said_to_be_whole")
"""Faults in the contract or the adapter alone, which are not there to be seen."""


def main(document: str, *parts: str) -> None:
    """Write the tables into their places."""
    jax.config.update("jax_num_cpu_devices", 8)
    makers = {"pages": lambda: pages("case"), "steps": lambda: pages("step"), "faults": faults}
    for part in parts or makers:
        table = makers[part]().replace(f"{Path.cwd()}/", "")
        path = Path(document)
        replace_text(path, insert(path.read_text(encoding="utf-8"), part, table))


if __name__ == "__main__":
    sys.modules["tests.adopted"] = sys.modules["__main__"]
    main(*sys.argv[1:])
