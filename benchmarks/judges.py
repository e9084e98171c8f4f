"""Judges of the losses of timed steps.

    truth                          NumPy in float64, within the bound of rounding
    the single device in float32   if the strategy has that and no truth: from the same start and batches
    the other windows              if it has neither: all windows have the same start, and must have the same losses

The single device's bound of a loss is `SHARE` of the fall of its own loss of the first batch over the window; if that
fall is less than `numerics.VACUOUS` of the loss, it cannot judge. The other windows must agree to the bit on a CPU;
elsewhere sums may be taken in another order each time (atomic additions), and `SHARE` is the bound for them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from meshproof.cases import Case, has_member
from meshproof.contract import Truth, nest
from meshproof.measures.numerics import VACUOUS, VACUOUS_IN, judge_loss
from meshproof.observing.brought_truth import digest
from meshproof.observing.members import canonical, loss_of, state_and_metrics
from meshproof.observing.probes import place
from meshproof.observing.state import host

SHARE = 0.1


class JudgeError(Exception):
    """A judge that cannot judge; the message says why."""


Losses = Sequence[float]


@dataclass(frozen=True)
class ByTruth:
    """Losses in float64, and the standard deviation of each by rounding."""

    losses: Losses
    deviations: Losses
    vacuous: float
    name: str = "truth"

    def problem(self, losses: Losses) -> str | None:
        """What is wrong with the losses of a window."""
        for number, judged in enumerate(zip(losses, self.losses, self.deviations, strict=True), 1):
            verdict = judge_loss(*judged, part=f"loss {number}", vacuous=self.vacuous)
            if not verdict.passed:
                return str(verdict)
        return None


@dataclass(frozen=True)
class BySingleDevice:
    """Losses of the single device in float32, and the allowed difference."""

    losses: Losses
    allowed: float
    name: str = "the single device in float32"

    def problem(self, losses: Losses) -> str | None:
        """What is wrong with the losses of a window."""
        return apart(losses, self.losses, self.allowed, self.name)


@dataclass
class ByWindows:
    """The losses of the first window; ``exact``: the others must equal them to the bit."""

    exact: bool
    seen: list[Losses] = field(default_factory=list)
    name: str = "the other windows"

    def problem(self, losses: Losses) -> str | None:
        """What is wrong with the losses of a window."""
        self.seen = self.seen or [list(losses)]
        first = self.seen[0]
        allowed = 0.0 if self.exact else SHARE * max(abs(first[0] - first[-1]), VACUOUS * abs(first[-1]))
        return apart(losses, first, allowed, "another window from the same start")


Judge = ByTruth | BySingleDevice | ByWindows


def apart(losses: Losses, expected: Losses, allowed: float, who: str) -> str | None:
    """A sentence on the first loss that differs from the expected one by more than ``allowed``."""
    for number, (loss, other) in enumerate(zip(losses, expected, strict=True), 1):
        if abs(loss - other) > allowed:
            bound = f"; allowed difference {allowed:.3g}" if allowed else ""
            return f"loss {number}: expected {other!r} of {who}, saw {loss!r}{bound}"
    return None


class Judges:
    """The judge of each case. Truths are computed once for all cases that share them, single devices once per case."""

    def __init__(self) -> None:
        self.computed: dict[Any, tuple[Losses, Losses]] = {}
        self.trained: dict[Any, BySingleDevice] = {}

    def of(self, case: Case, batches: Sequence[Any], train: bool) -> Judge:
        """The judge of training on these host batches in turn; or of the forward pass on each, from the start."""
        strategy: Any = case.strategy
        if has_member(strategy, "truth") and has_member(strategy, "load"):
            key = (strategy.truth, digest(list(batches)), train)
            if key not in self.computed:
                self.computed[key] = true_losses(strategy.truth, batches, train)
            return ByTruth(*self.computed[key], VACUOUS_IN[case.contract.compute_dtype])
        if has_member(strategy, "single_device") and has_member(strategy, "parameters"):
            key = (case, digest(list(batches)), train)
            if key not in self.trained:
                with jax.default_matmul_precision("float32"):  # a GPU's default is TF32
                    self.trained[key] = single_device(case, batches, train)
            return self.trained[key]
        return ByWindows(exact=jax.default_backend() == "cpu")


def true_losses(truth: Truth, batches: Sequence[Any], train: bool) -> tuple[Losses, Losses]:
    """The losses in float64, and their deviations."""
    start = truth.initial_parameters()
    runs = [truth.train(start, given) for given in ([batches] if train else [[batch] for batch in batches])]
    return (
        [step.loss for run in runs for step in run.value.steps],
        [step.loss for run in runs for step in run.rounding.steps],
    )


def single_device(case: Case, batches: Sequence[Any], train: bool) -> BySingleDevice:
    """The judge of a case by its own single device. Raises `JudgeError` if its loss falls too little.

    In a forward pass it does not fall: there the bound is `numerics.VACUOUS` of the loss.
    """
    strategy: Any = case.strategy
    trainer = strategy.single_device("float32")
    start = host(canonical(strategy.parameters(strategy.init(jax.random.key(0))), "parameters"))
    state, losses = trainer.load(nest(start)), []
    for batch in batches:
        given = place(trainer, batch)
        if train:
            state, metrics = state_and_metrics(trainer.train_step(state, given))
            losses.append(loss_of(metrics))
        else:
            losses.append(float(trainer.loss(state, given)))
    if not train:
        return BySingleDevice(losses, VACUOUS * max(map(abs, losses)))
    fall = losses[0] - losses[-1]
    if not fall > VACUOUS * abs(losses[-1]) or not math.isfinite(fall):
        raise JudgeError(
            f"{case.id}: on a single device the loss goes from {losses[0]!r} to {losses[-1]!r} in {len(losses)} steps; "
            f"it must fall by {VACUOUS:.0%} or more for a wrong step to be seen by it"
        )
    return BySingleDevice(losses, SHARE * fall)
