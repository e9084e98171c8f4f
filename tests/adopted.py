"""``python -m tests.adopted docs/adopt.md``: what `meshproof adopt` makes of the book's pages, and of planted faults.

Each strategy is adopted without its contract. Of a page, what is written must be what the page says. Of a fault, a
question must be asked of what the fault is in.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import jax

from meshproof.adopting.contracts import Adoption, adopt
from meshproof.adopting.members import adapt
from meshproof.adopting.seeing import see
from meshproof.adopting.traffic import key  # noqa: F401
from meshproof.cases import case_id, spelled
from meshproof.contract import Contract, leaves

FLAGS = ("device_dimension", "microbatches", "mask", "compute_dtype", "rematerialises")


class Stripped:
    """A strategy that promises nothing."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    def __getattr__(self, member: str) -> Any:
        if member == "contract" or member.startswith("__"):
            raise AttributeError(member)
        return getattr(self._strategy, member)


def subjects() -> dict[str, Any]:
    """The book's strategies and the planted ones by case."""
    import reference_impl
    from tests import saboteurs

    return {case_id(each): each for each in (*reference_impl.strategies(), *saboteurs.strategies())}


CASES: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    """A strategy without its contract, by the number of its case: what an adapter imports."""
    if not name.startswith("case_"):
        raise AttributeError(name)
    if not CASES:
        CASES.update(subjects())
    return Stripped(list(CASES.values())[int(name.removeprefix("case_"))])


def adopted(case: str) -> Adoption:
    """What is written of a case."""
    if not CASES:
        CASES.update(subjects())
    return adopt(see(adapt(f"tests.adopted:case_{list(CASES).index(case)}")))


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
        one, other = (sorted(map(str, spelled(getattr(each, part), mesh) or ())) for each in (found, said))
        if one != other:
            yield f"{part}: {sorted(set(one) - set(other))}, page {sorted(set(other) - set(one))}"
    for flag in FLAGS:
        if getattr(found, flag) != getattr(said, flag):
            yield f"{flag}: {getattr(found, flag)}, page {getattr(said, flag)}"


def spec(declared: Any, mesh: dict[str, int]) -> tuple[Any, ...]:
    """A layout without axes of one device and without whole dimensions at its end."""
    entries = [
        tuple(axis for axis in ((entry,) if isinstance(entry, str) else entry or ()) if mesh[axis] > 1)
        for entry in declared
    ]
    while entries and not entries[-1]:
        entries.pop()
    return tuple(entries)


def main(*words: str) -> None:
    """Adopt the cases whose names hold one of these words."""
    jax.config.update("jax_num_cpu_devices", 8)
    CASES.update(subjects())
    good = tried = 0
    for case, strategy in CASES.items():
        if words and not any(word in case or word == type(strategy).__module__.split(".")[0] for word in words):
            continue
        start = time.perf_counter()
        try:
            found = adopted(case)
        except Exception as error:
            print(f"## {case}: {type(error).__name__}: {error}"[:600], flush=True)
            tried += 1
            continue
        took = time.perf_counter() - start
        different = list(differences(found.contract, strategy.contract, strategy))
        tried += 1
        good += not different
        print(f"## {case} ({took:.1f} s): {'AGREES' if not different else ''}")
        for each in different:
            print(f"   {each}"[:700])
        for question in found.questions:
            print(f"   ? {question.about}: {question.text}"[:400], flush=True)
        jax.clear_caches()
    print(f"{good} of {tried}")


if __name__ == "__main__":
    sys.modules["tests.adopted"] = sys.modules["__main__"]
    main(*sys.argv[1:])
