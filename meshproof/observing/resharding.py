"""What becomes of a checkpoint on another mesh, and of one that was saved there: restored, saved and restored again.

A partner is the same strategy on another mesh, or another one, whose state has the same leaves. The strategy saves, the
partner restores and saves, the strategy restores: each restores what was saved in a layout that is not its own. Of many
that are alike each is the partner of another one, and restores its checkpoint: of these one goes the way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import jax

from meshproof.cases import Case, has_member
from meshproof.contract import Leaves
from meshproof.measures.numerics import bitwise
from meshproof.observing.alone import on_one_device
from meshproof.observing.gathering import gathered
from meshproof.observing.members import told
from meshproof.observing.seen import NotSupported, Unseen
from meshproof.observing.state import kinds_of, layout_of, moved, retyped, values_of
from meshproof.observing.subject import Subject

MEMBERS = ("save", "restore")
TRIED = 4
"""How many strategies are looked at for one whose state has the same leaves."""

NAMES = ("the saved state", "the restored state")


@dataclass(frozen=True)
class Resharded:
    """A checkpoint that one strategy saved and another restored: what is wrong with the state, leaf by leaf."""

    saved_by: str
    restored_by: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """A strategy that saves and restores, and the layout that its state has after ``init``."""

    name: str
    strategy: Any
    where: dict[str, tuple[Any, int]]


@dataclass(frozen=True)
class Saved:
    """The state that every restore must return: its numbers, and the dtype and shape of each array."""

    values: Leaves
    kinds: dict[str, str]

    def problems(self, by: Side, state: Any, model: tuple[str, ...]) -> list[str]:
        """What is wrong with a state that ``by`` restored, as this process sees it."""
        verdict = bitwise(self.values, values_of(state, model), "state", NAMES)
        found = [*moved(by.where, layout_of(state)), *retyped(self.kinds, kinds_of(state))]
        return found if verdict.passed else [*found, str(verdict)]

    def restored(self, subject: Subject, saved_by: Side, by: Side, folder: Path, state: Any = None) -> Any:
        """What ``by`` makes of a folder, and what is wrong with it; ``saved_by`` first saves ``state`` there."""

        def saved_and_restored() -> Any:
            if state is not None:
                saved_by.strategy.save(state, folder)
            return by.strategy.restore(folder)

        found = subject.attempt(saved_and_restored)
        wrong = subject.then(found, lambda found: self.problems(by, found, subject.model))
        if isinstance(wrong, Unseen):
            wrong = [f"expected the saved state, saw {wrong.reason}"]
        everywhere = dict.fromkeys(problem for each in gathered(wrong) for problem in each)
        return found, Resharded(saved_by.name, by.name, tuple(everywhere))


def observe_resharding(
    subject: Subject, whole: Path, saved: Saved, where: dict[str, tuple[Any, int]], back: bool
) -> tuple[Resharded, ...] | NotSupported:
    """The checkpoint ``whole`` of the subject's layout ``where``, restored by each partner, and ``back`` from there."""
    own, found = Side(subject.case.id, subject.strategy, where), []
    refused: list[str] = []
    for group in partners(subject):
        if (other := first_fitting(group, saved.kinds, refused)) is None:
            continue
        state, there = saved.restored(subject, own, other, whole)
        found.append(there)
        if back and not there.problems:
            folder = whole.with_name(f"saved_by_partner_{len(found)}")
            found.append(saved.restored(subject, other, own, folder, state)[1])
    if found:
        return tuple(found)
    return NotSupported(
        refused[0]
        if refused
        else "there is nothing else to restore it by: no strategy of the same framework, model and variant, on this "
        f"mesh or another that this host has the devices for ({jax.device_count()}), and no single_device, has save "
        "and restore"
    )


def partners(subject: Subject) -> tuple[Iterator[tuple[str, Any]], Iterator[tuple[str, Any]]]:
    """By name the same strategy on other meshes; and other strategies, those on other meshes first, and the strategy
    on one device. Each begins with the case that comes next in the implementation's order: not all meet one."""
    own, at = subject.case, next((at for at, each in enumerate(subject.cases) if each is subject.case), 0)
    alike = [each for each in (*subject.cases[at + 1 :], *subject.cases[:at]) if are_alike(own, each)]
    meshes = [each for each in alike if each.strategy.name == own.strategy.name]
    others = sorted((each for each in alike if each not in meshes), key=lambda each: each.mesh == own.mesh)

    def other() -> Iterator[tuple[str, Any]]:
        yield from islice(((each.id, each.strategy) for each in others), TRIED)
        if subject.has("single_device") and not jax.distributed.is_initialized():  # each process has one of its own
            yield "what single_device returns", on_one_device(subject.strategy, "float32")

    return ((each.id, each.strategy) for each in meshes[:TRIED]), other()


def are_alike(one: Case, other: Case) -> bool:
    """Whether they may be trainers of the same state, both of which save it; and here are the devices, of which several
    processes all have some."""

    def kin(case: Case) -> tuple[str, ...]:
        strategy: Any = case.strategy
        return strategy.framework, strategy.model, getattr(strategy, "variant", ""), case.target

    saves = all(has_member(other.strategy, member) for member in MEMBERS)
    fewest = jax.device_count() if jax.distributed.is_initialized() else 1
    return kin(one) == kin(other) and saves and fewest <= other.devices <= jax.device_count()


def first_fitting(group: Iterator[tuple[str, Any]], kinds: dict[str, str], refused: list[str]) -> Side | None:
    """The first whose state has leaves of these kinds; why others have not is added to ``refused``."""
    for name, strategy in group:
        if absent := [member for member in MEMBERS if not has_member(strategy, member)]:
            refused.append(f"{name} has no {' and no '.join(absent)}")
            continue
        try:
            start = abstract(strategy)
        except Exception as error:
            refused.append(f"no state of {name} could be made: {told(error)}")
            continue
        its = kinds_of(start)
        if not (differs := [path for path in kinds | its if kinds.get(path) != its.get(path)]):
            return Side(name, strategy, layout_of(start))
        refused.append(
            f"the state of {name} is another: {differs[0]} is {its.get(differs[0], 'absent')} there, and "
            f"{kinds.get(differs[0], 'absent')} here"
        )
    return None


def abstract(strategy: Any) -> Any:
    """Shapes and shardings of the state that ``init`` makes; that state where the strategy does not show them."""
    return strategy.abstract_state() if has_member(strategy, "abstract_state") else strategy.init(jax.random.key(0))
