"""Which cases stand for others: of all a covering, and of those that are alike the first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from meshproof.cases import QUIET, Case

FEW = 16
"""So many cases are each judged by what takes long; of more, one of each kind."""


def covering(cases: Sequence[Case], devices: int) -> list[Case]:
    """As many as have every strategy, framework, model, variant and kind of state among them, of each target: a trainer
    is left out where all that it is, trainers before it are. First come those that need no more than so many devices,
    of these those of several, and of these the first of their kinds. One that is chosen is so with its draws and
    without."""
    met: set[Hashable] = set()

    def order(case: Case) -> tuple[bool, ...]:
        return case.devices > devices, case.devices == 1, not first_of_its_kind(case, cases)

    def adds(case: Case) -> bool:
        new = {(case.target, *each) for each in enumerate((*_trainer(case)[:4], case.kept_by))} - met
        met.update(new)
        return bool(new)

    chosen = {_trainer(case) for case in sorted(cases, key=order) if adds(case)}
    return [case for case in cases if _trainer(case) in chosen]


def _trainer(case: Case) -> tuple[Hashable, ...]:
    """What a case is, but for whether it draws."""
    strategy: Any = case.strategy
    variant = getattr(strategy, "variant", "").removesuffix(QUIET).removesuffix("+")
    return strategy.name, strategy.framework, strategy.model, variant, case.target, *case.mesh.items()


def first_of_its_kind(case: Case, cases: Sequence[Case]) -> bool:
    """Whether it is the first of those whose states are written and read alike (`Case.kept_by`), on the smallest of
    their meshes of several devices: a larger one may find too few. Each is, where its target has `FEW` cases: one
    function may do another thing for each strategy."""
    return _is_first(case, cases, lambda each: each.kept_by)


def first_of_its_trainer(case: Case, cases: Sequence[Case]) -> bool:
    """The same of each strategy, framework and model: its variants and meshes keep the same arrays. Where a contract
    says of the optimizer's state but ``*``, a variant may have another optimizer, and is a trainer of its own."""

    def kind(each: Case) -> tuple[Hashable, ...]:
        says = all(not path.startswith("*") for path in each.contract.optimizer_state or {})
        return *_trainer(each)[: 3 if says else 4], each.kept_by

    return _is_first(case, cases, kind)


def _is_first(case: Case, cases: Sequence[Case], kind: Callable[[Case], Hashable]) -> bool:
    if sum(each.target == case.target for each in cases) <= FEW:
        return True
    alike = (each for each in cases if kind(each) == kind(case))
    return case is min(alike, key=lambda each: (each.devices == 1, each.devices), default=case)
