"""A timed window: K calls from the same start with one wait at their end, and the checks that its time needs."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

import jax

from meshproof.cases import Case, has_member
from meshproof.observing.compilations import compilations_of

from .judges import Judge, Judges

STEPS = 10
"""Calls per window: enough that the wait at the end is small beside them.

Not more: with 50 steps of 8 virtual devices enqueued, XLA's CPU backend deadlocks and aborts (jaxlib 0.10.2).
"""

WARM_UPS = 5
"""The most windows until nothing compiles any more."""


class WindowError(Exception):
    """A window whose time does not count: it compiled, was not waited for, or its numbers are wrong."""


class Window:
    """The windows of one case: K train steps, each donating the state that it gets.

    `check` takes one more step, untimed: its loss is that of the state that the timed steps left behind.
    """

    member: ClassVar[str] = "train_step"

    def __init__(self, case: Case, judges: Judges | None = None) -> None:
        self.case = case
        self.judges = judges or Judges()
        self.strategy: Any = case.strategy
        self.events: list[str] = []
        self.state: Any = None
        self.losses: list[Any] = []

    @cached_property
    def judge(self) -> Judge:
        """Who says what the losses must be."""
        return self.judges.of(self.case, self.host_batches, train=True)

    @cached_property
    def host_batches(self) -> list[Any]:
        """The batches of the timed steps, and the first one again: its loss shows what they learned."""
        batches = list(self.strategy.batches(STEPS))
        return [*batches, batches[0]]

    @cached_property
    def batches(self) -> list[Any]:
        """The batches on their devices: placing them is not timed."""
        place = self.strategy.shard_batch if has_member(self.strategy, "shard_batch") else lambda batch: batch
        return [place(batch) for batch in self.host_batches]

    def warm_up(self) -> None:
        """Run and check windows until one compiles nothing. Raises `WindowError` if none does."""
        for _ in range(WARM_UPS):
            with compilations_of() as events:
                self.run(*self.set_up()[0])
                self.check_numbers()
            if not events:
                return
        raise WindowError(f"{self.case.id} still compiles in window {WARM_UPS}: {', '.join(sorted(set(events)))}")

    def set_up(self) -> tuple[tuple[Any], dict[str, Any]]:
        """A fresh state, ready, which the step will donate. The last one is deleted first."""
        self.state = None
        return (jax.block_until_ready((self.start(), self.batches))[0],), {}

    def start(self) -> Any:
        """The state that every window starts from: with the truth's values, if it judges."""
        return self.strategy.load(self.values) if self.values else self.strategy.init(jax.random.key(0))

    @cached_property
    def values(self) -> Any:
        """The truth's start values, if it judges."""
        judged = has_member(self.strategy, "truth") and has_member(self.strategy, "load")
        return self.strategy.truth.initial_parameters() if judged else None

    def run(self, state: Any) -> None:
        """The timed part."""
        self.losses = []
        for batch in self.batches[:-1]:
            state, metrics = self.strategy.train_step(state, batch)
            self.losses.append(metrics["loss"])
        self.state = self.wait((state, metrics))[0]

    def wait(self, results: Any) -> Any:
        """These results, once they are ready."""
        return jax.block_until_ready(results)

    def check(self, *_: Any) -> None:
        """Run after each timed window. Raises `WindowError`; pytest-benchmark then saves no time."""
        pending = [leaf for leaf in jax.tree.leaves((self.state, self.losses)) if not is_ready(leaf)]
        if pending:
            raise WindowError(f"{self.case.id} was not waited for: {len(pending)} arrays are still being computed")
        if self.events:
            raise WindowError(f"{self.case.id} compiled while it was timed: {', '.join(sorted(set(self.events)))}")
        self.check_numbers()

    def check_numbers(self) -> None:
        """Judge all losses, and that of the state that was left behind."""
        metrics = self.strategy.train_step(self.state, self.batches[-1])[1]  # no state is kept while a judge trains
        self.state = None
        self.judge_losses([*self.losses, metrics["loss"]])

    def judge_losses(self, given: list[Any]) -> None:
        """Raises `WindowError` if a loss is not finite, or its judge rejects it."""
        self.losses = [float(loss) for loss in given]
        for number, loss in enumerate(self.losses, 1):
            if not math.isfinite(loss):
                raise WindowError(f"{self.case.id}: loss {number} is {loss}")
        if problem := self.judge.problem(self.losses):
            raise WindowError(f"{self.case.id}: {problem}")


class ForwardWindow(Window):
    """K forward passes, each on another batch, from one state that is kept."""

    member = "loss"

    @cached_property
    def judge(self) -> Judge:
        """Who says what the losses must be."""
        return self.judges.of(self.case, self.host_batches, train=False)

    @cached_property
    def host_batches(self) -> list[Any]:
        """The batches of the timed passes."""
        return list(self.strategy.batches(STEPS))

    @cached_property
    def kept(self) -> Any:
        """The state."""
        return self.start()

    def set_up(self) -> tuple[tuple[Any], dict[str, Any]]:
        """The state, once it is ready."""
        return (jax.block_until_ready((self.kept, self.batches))[0],), {}

    def run(self, state: Any) -> None:
        """The timed part."""
        self.losses = self.wait([self.strategy.loss(state, batch) for batch in self.batches])

    def check_numbers(self) -> None:
        """Judge all losses."""
        self.judge_losses(self.losses)


def is_ready(value: Any) -> bool:
    """Whether a value is ready; what is no array is, and a typed random key, of which JAX does not say it."""
    return value.is_ready() if hasattr(value, "is_ready") else True
