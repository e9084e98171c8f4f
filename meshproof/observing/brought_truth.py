"""The truth that an implementation brings: asked in the observing process, where it has a time limit."""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Step, Tree, Truth, leaves, nest
from meshproof.files import replace_pickle
from meshproof.observing.evaluations import evaluation_set
from meshproof.observing.members import canonical, origin, reference_trajectory
from meshproof.observing.seen import Failed, NotSupported, Seen
from meshproof.observing.subject import STEPS

T = TypeVar("T")


class BroughtTruths:
    """Every truth that a process was asked for, trained once for all that start from the same on the same batches."""

    def __init__(self) -> None:
        self.trained: dict[tuple[Any, str], tuple[Truth, Path]] = {}

    def train(self, case: Case, batches: Sequence[Batch] | None, observation: Path) -> Seen[Path]:
        """The file of the `ReferenceTrajectory`; or what the truth raised and where, or what its result lacks.

        Trained from the canonical values where the strategy can load them, else from what its ``init`` made when it was
        observed; on the batches that it was observed on, or on others. Equal trajectories share a file.
        """
        truth: Truth = case.strategy.truth  # type: ignore[attr-defined]

        def train() -> Seen[Path]:
            if has_member(case.strategy, "load"):
                start = dict(leaves(canonical(truth.initial_parameters(), "initial_parameters")))
            else:
                start = pickle.loads(observation.read_bytes()).start.parameters
                if isinstance(start, (NotSupported, Failed)):
                    return start
            given = tuple(case.strategy.batches(STEPS) if batches is None else batches)
            key = (identity(truth), digest([start, *given]))
            if key not in self.trained:
                path = observation.parent / f"reference-{os.getpid()}-{len(self.trained)}.pickle"
                replace_pickle(path, reference_trajectory(truth.train(nest(start), given), len(given)))
                self.trained[key] = truth, path
            return self.trained[key][1]

        return judged(truth, train)


def evaluate(case: Case, step: Step) -> Seen[Any]:
    """The truth's `Evaluation` of the state after a step over the evaluation set; or what it raised and where."""
    truth: Any = case.strategy.truth  # type: ignore[attr-defined]

    def evaluate() -> Any:
        takes_auxiliary = "auxiliary" in inspect.signature(truth.evaluate).parameters
        more = {"auxiliary": nest(step.auxiliary)} if takes_auxiliary else {}
        return truth.evaluate(nest(step.parameters), evaluation_set(list(case.strategy.batches(STEPS))), **more)

    return judged(truth, evaluate)


def judged(truth: Any, ask: Callable[[], Seen[T]]) -> Seen[T]:
    """What a truth says, on one thread: on more of them sums have another order, and idle BLAS threads spin."""
    try:
        with threadpool_limits(1):
            return ask()
    except Exception as error:
        return Failed(f"truth, a {type(truth).__name__}: {type(error).__name__}: {error} ({origin(error)})")


def identity(truth: Truth) -> Any:
    """What a truth is found by again: any that equals it, but where it has no hash the object alone."""
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
