"""The truth of every case, as its observing process computes it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from functools import cache
from math import inf
from pathlib import Path

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Evaluation, ReferenceTrajectory, Step
from meshproof.measures.numerics import judge_loss
from meshproof.observing.key_streams import as_on_one_device
from meshproof.observing.observation import Observation
from meshproof.observing.process import Observer
from meshproof.observing.seen import NOT_RUN, NotSupported, Seen, Unseen

OTHER_DRAWS = (
    "its step draws other random numbers on the mesh, from init(key), than on one device, from load(parameters), so "
    "that only their distribution is judged, by NUM-9 (if only the key differs, let load begin with that of "
    "init(jax.random.key(0)))"
)
"""Why the numbers of a trainer cannot be held to those of one device."""

BRING_QUIET = "bring without_draws(), the same trainer with its rates at 0"
JUDGED_QUIET = "the rest is judged in its case +without_draws"
"""What would let them be, or does."""


class Truths:
    """The truth of every case, computed once for all that start from the same values and see the same batches.

    Where the implementation brings none, its own run on one device, on the batches that it was observed on.
    """

    def __init__(self, observers: Mapping[str, Observer]) -> None:
        self.observers = observers
        self.usual: dict[str, Seen[ReferenceTrajectory]] = {}

    def of(
        self, case: Case, observation: Observation, batches: Iterable[Batch] | None = None
    ) -> Seen[ReferenceTrajectory]:
        """Trained from the canonical values where the strategy can load them, else from what its ``init`` made.

        On the batches that the strategy was observed on, or on others.
        """
        if case.compiles_only:
            return NOT_RUN
        if not has_member(case.strategy, "truth"):
            if batches is not None or not has_member(case.strategy, "single_device"):
                return NotSupported("the implementation brings no truth")
            return alone(observation, has_member(case.strategy, "without_draws"))
        if batches is not None:
            return self.trained(case, tuple(batches))
        if case.id not in self.usual:
            self.usual[case.id] = self.trained(case)
        return self.usual[case.id]

    def trained(self, case: Case, batches: tuple[Batch, ...] | None = None) -> Seen[ReferenceTrajectory]:
        """The truth of a case; or what it raised and where, what its result lacks, or where it met its time limit."""
        seen = self.observers[case.target].truth(case.id, batches)
        return read(seen) if isinstance(seen, Path) else seen

    def evaluation(self, case: Case, step: Step) -> Seen[Evaluation]:
        """What a truth that can evaluate says of the state after a step, over the evaluation set."""
        if case.compiles_only:
            return NOT_RUN
        if not has_member(getattr(case.strategy, "truth", None), "evaluate"):
            return NotSupported("the strategy's truth has no evaluate")
        return self.observers[case.target].evaluation(case.id, step)


def alone(observation: Observation, quiet: bool = False) -> Seen[ReferenceTrajectory]:
    """What one device computes. A step that draws other numbers there than on the mesh says nothing of them; ``quiet``
    says that it has a case without draws."""
    other = NotSupported(f"{OTHER_DRAWS}: {JUDGED_QUIET if quiet else BRING_QUIET}")
    seen, steps, mesh = observation.single_device, observation.training.steps, observation.draws.keys
    truth = seen.truth
    if seen.draws is not True or isinstance(truth, Unseen) or isinstance(steps, Unseen):
        return truth
    if not (isinstance(seen.keys, Unseen) or isinstance(mesh, Unseen)):
        return truth if as_on_one_device(mesh[0], seen.keys[0]) else other
    first, rounding = truth.value.steps[0], truth.rounding.steps[0]
    if judge_loss(steps[0].loss, first.loss, rounding.loss, vacuous=inf).passed:
        return truth
    return other


@cache
def read(path: Path) -> ReferenceTrajectory:
    """A reference trajectory that several cases share."""
    reference: ReferenceTrajectory = pickle.loads(path.read_bytes())
    return reference
