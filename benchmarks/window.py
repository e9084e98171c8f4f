"""What is timed: K train steps from the same start, state threaded through, one wait at their end."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, TypeAlias

import jax

from meshproof.cases import Case, has_member
from meshproof.compilations import compilations_of
from meshproof.contract import Truth
from meshproof.judging import digest
from meshproof.numerics import judge_loss

Expectations: TypeAlias = dict[tuple[Truth, str], tuple[float, float]]
"""What was computed of a truth on these batches (by digest): a loss in float64, and its float32 deviation."""

STEPS = 10
"""Steps per window: many enough that the one wait at the end is little beside them."""

WARM_UPS = 5
"""Windows within which compiling must have come to an end."""


class WindowError(Exception):
    """A window whose time says nothing of the strategy: it compiled, or its state is wrong."""


class Window:
    """The windows of one case, all alike.

    `check` takes one more step, untimed: its loss is that of the very state that the timed steps left behind.
    """

    def __init__(self, case: Case, expectations: Expectations | None = None) -> None:
        self.case = case
        self.expectations = {} if expectations is None else expectations
        self.strategy: Any = case.strategy
        self.events: list[str] = []
        self.state: Any = None
        self.losses: list[float] = []

    @cached_property
    def truth(self) -> Truth | None:
        """The judge of the losses, where the strategy brings one and can start from its values."""
        judged = has_member(self.strategy, "truth") and has_member(self.strategy, "load")
        return self.strategy.truth if judged else None

    @cached_property
    def host_batches(self) -> list[Any]:
        """The batches of the timed steps, and of the one that checks them."""
        return list(self.strategy.batches(STEPS + 1))

    @cached_property
    def batches(self) -> list[Any]:
        """The same on their devices: placing them is not timed."""
        place = self.strategy.shard_batch if has_member(self.strategy, "shard_batch") else lambda batch: batch
        return [place(batch) for batch in self.host_batches]

    @cached_property
    def expected(self) -> tuple[float, float] | None:
        """The checking step's loss in float64, and the deviation that float32 rounding explains of it."""
        if self.truth is None:
            return None
        key = (self.truth, digest(self.host_batches))
        if key not in self.expectations:
            judgement = self.truth.train(self.truth.initial_parameters(), self.host_batches)
            self.expectations[key] = (judgement.value.steps[-1].loss, judgement.rounding.steps[-1].loss)
        return self.expectations[key]

    def warm_up(self) -> None:
        """Run and check windows until one compiles nothing. Raises `WindowError` where none does."""
        for _ in range(WARM_UPS):
            with compilations_of() as events:
                self.run(*self.set_up()[0])
                self.check_loss()
            if not events:
                return
        raise WindowError(f"{self.case.id} still compiles in window {WARM_UPS}: {', '.join(sorted(set(events)))}")

    def set_up(self) -> tuple[tuple[Any], dict[str, Any]]:
        """A fresh state that is there, not on its way: the step will donate it."""
        if self.truth is not None:
            state = self.strategy.load(self.truth.initial_parameters())
        else:
            state = self.strategy.init(jax.random.key(0))
        return (jax.block_until_ready((state, self.batches))[0],), {}

    def run(self, state: Any) -> None:
        """The timed part."""
        for batch in self.batches[:-1]:
            state, metrics = self.strategy.train_step(state, batch)
        self.state = jax.block_until_ready((state, metrics))[0]

    def check(self, *_: Any) -> None:
        """After each timed window. Raises `WindowError`; pytest-benchmark then saves no time."""
        if self.events:
            raise WindowError(f"{self.case.id} compiled while it was timed: {', '.join(sorted(set(self.events)))}")
        self.check_loss()

    def check_loss(self) -> None:
        """Hold the loss of the state that was left behind to truth; without one, to the first window's."""
        _, metrics = self.strategy.train_step(self.state, self.batches[-1])
        loss, self.state = float(metrics["loss"]), None
        if not math.isfinite(loss):
            raise WindowError(f"{self.case.id}: the loss after {STEPS} steps is {loss}")
        if self.expected is not None:
            verdict = judge_loss(loss, *self.expected, part=f"loss after {STEPS} steps")
            if not verdict.passed:
                raise WindowError(f"{self.case.id}: {verdict}")
        elif self.losses and loss != self.losses[0]:
            raise WindowError(
                f"{self.case.id}: the loss after {STEPS} steps from one start is {loss!r}, it was {self.losses[0]!r}"
            )
        self.losses.append(loss)
