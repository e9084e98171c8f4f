"""The truth of every case: the numbers that it must compute."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Judgement, Tree, Truth, leaves, nest
from meshproof.observing.members import canonical, judgement, origin
from meshproof.observing.observation import Observation
from meshproof.observing.seen import Failed, NotSupported, Seen
from meshproof.observing.subject import STEPS


class Truths:
    """The truth of every case, computed once per process for all cases with equal truth, start values and batches.

    An implementation without truth is judged by its own float64 run on one device, if it has ``single_device``.
    """

    def __init__(self) -> None:
        self.computed: dict[tuple[Any, str], tuple[Truth, Judgement]] = {}
        self.usual: dict[str, Seen[Judgement]] = {}

    def of(self, case: Case, observation: Observation, batches: Iterable[Batch] | None = None) -> Seen[Judgement]:
        """The truth of a case, on the batches that it was observed on or on others.

        It starts from the canonical values if the strategy can load them, else from the values that its ``init`` made.
        """
        if not has_member(case.strategy, "truth"):
            if batches is not None or not has_member(case.strategy, "single_device"):
                return NotSupported("the implementation brings no truth")
            return observation.single_device_truth
        if batches is not None:
            return self.trained(case, observation, batches)
        if case.id not in self.usual:
            self.usual[case.id] = self.trained(case, observation, case.strategy.batches(STEPS))
        return self.usual[case.id]

    def trained(self, case: Case, observation: Observation, batches: Iterable[Batch]) -> Seen[Judgement]:
        """The truth of a case on these batches; `Failed` if it raises or returns something else."""
        truth: Truth = case.strategy.truth  # type: ignore[attr-defined]
        try:
            if has_member(case.strategy, "load"):
                start = dict(leaves(canonical(truth.initial_parameters(), "initial_parameters")))
            elif isinstance(observation.start.parameters, (NotSupported, Failed)):
                return observation.start.parameters
            else:
                start = observation.start.parameters
            given = tuple(batches)
            key = (identity(truth), digest([start, *given]))
            if key not in self.computed:
                self.computed[key] = truth, judgement(truth.train(nest(start), given), len(given))
            return self.computed[key][1]
        except Exception as error:
            return Failed(f"truth, a {type(truth).__name__}: {type(error).__name__}: {error} ({origin(error)})")


def identity(truth: Truth) -> Any:
    """A key for a truth: the truth itself, so that equal ones are computed once; its ``id`` if it has no hash."""
    try:
        hash(truth)
    except TypeError:
        return id(truth)
    return truth


def digest(trees: Iterable[Tree]) -> str:
    """The SHA-256 of the paths, dtypes, shapes and bytes of trees of arrays. Reports keep it: it must not change."""
    content = hashlib.sha256()
    for tree in trees:
        for path, value in leaves(tree):
            array = np.asarray(value)
            content.update(f"{path} {array.dtype} {array.shape}".encode())
            content.update(array.tobytes())
    return content.hexdigest()
