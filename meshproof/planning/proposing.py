"""What of a plan is compiled: the target of its chips, and its layout as an implementation can build it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshproof.planning.costs import Plan
from meshproof.planning.layouts import Layout, divisors
from meshproof.planning.models import PlanError
from meshproof.planning.search import Question, by_strategy
from meshproof.targets import read_target


@dataclass(frozen=True)
class Piece:
    """A layout with the tokens that it takes at once: a plan's, or one of its microbatches."""

    layout: Layout
    batch: int
    of: int


def target_of(question: Question) -> str:
    """The target of so many chips: hosts full of GPUs, or the squarest slice of TPUs. Raises `PlanError`."""
    chip, chips = question.chip, question.chips
    if "dimensions" not in chip.described:
        hosts, rest = divmod(chips, chip.linked)
        if hosts and rest:
            raise PlanError(
                f"--verify: {chips:,} × {chip.name} are no whole hosts of {chip.linked}: expected a multiple of it, or "
                f"fewer"
            )
        return f"gpu:{chip.name}:{f'{hosts}x{chip.linked}' if hosts > 1 else chips}"
    if chips > chip.linked:
        raise PlanError(
            f"--verify: {chips:,} × {chip.name} are more than a slice of {chip.linked:,}, and what leaves a slice is "
            f"in no program: expected as many, or fewer"
        )
    slice_of_all = f"tpu:{chip.name}:{'x'.join(map(str, squarest(chips, chip.axes)))}"
    try:
        return read_target(slice_of_all).name
    except ValueError as error:
        _, _, why = str(error).partition(": ")
        raise PlanError(f"--verify: {chips:,} × {chip.name} make no slice: {why}; change --chips") from error


def squarest(number: int, dimensions: int) -> tuple[int, ...]:
    """So many factors that are as close to each other as they can be, the smallest first."""
    if dimensions == 1:
        return (number,)
    smallest = max(factor for factor in divisors(number) if factor**dimensions <= number)
    return (smallest, *squarest(number // smallest, dimensions - 1))


def chosen(question: Question, plans: Sequence[Plan], strategy: str | None) -> list[Plan]:
    """The best plan of each strategy that fits, or of the one that is named. Raises `PlanError` where there is none."""
    best = by_strategy(list(plans))
    if strategy is None:
        return [plan for plan in best.values() if question.fits(plan)]
    named = {name.lower(): plan for name, plan in best.items()}
    if strategy.lower() not in named:
        raise PlanError(f"--strategy {strategy}: no plan is called so; expected one of {', '.join(best)}")
    return [named[strategy.lower()]]


def pieces(plans: Sequence[Plan], batch: int) -> Iterator[Piece]:
    """What of each plan is compiled: one microbatch, which moves and holds what each of them does."""
    for plan in plans:
        of = plan.layout.microbatches
        yield Piece(replace(plan.layout, microbatches=1), batch // of, of)


def proposal(question: Question, piece: Piece, optimizer: str) -> dict[str, Any]:
    """The fields of a `meshproof.contract.Proposal`."""
    model, layout = question.model, piece.layout
    return {
        "strategy": layout.name,
        "mesh": layout.mesh,
        "recomputes": layout.recomputes,
        "examples": piece.batch // (model.length or 1),
        "length": model.length,
        "layers": model.layers,
        "layer_parameters": model.layer,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "heads": model.heads,
        "vocabulary": model.vocabulary,
        "precision": question.precision.name,
        "optimizer": optimizer,
    }
