"""What becomes of a state that is saved and restored: its bits, its layout, and how training goes on from it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshproof.chosen import first_of_its_kind, first_of_its_trainer
from meshproof.contract import Leaves
from meshproof.measures.numerics import bitwise
from meshproof.measures.verdicts import Verdict
from meshproof.observing.background_saves import BackgroundSaves, observe_background_saves
from meshproof.observing.damage import Damaged, observe_damage
from meshproof.observing.gathering import gathered
from meshproof.observing.members import state_and_metrics
from meshproof.observing.missing_leaves import Refused, observe_missing
from meshproof.observing.other_states import with_rates_times
from meshproof.observing.resharding import Resharded, Saved, observe_resharding
from meshproof.observing.seen import Facet, Failed, NotExercised, NotSupported, Seen, Unseen
from meshproof.observing.state import kinds_of, layout_of, moved, retyped, values_of
from meshproof.observing.subject import STEPS, Subject
from meshproof.observing.whole_leaves import unwatched, watched

NOT_CONTINUED = Failed("training did not go on from the restored state")
IN_ONE_PROCESS = NotExercised(
    "damage, missing leaves and saves in the background are observed in one process: run without --distributed"
)
NO_COMMON_FOLDER = NotExercised(
    "the processes see no common folder for temporary files: let TMPDIR name one that all of them see"
)
NOT_ASKED = NotExercised("no clause of checkpoints was selected")
OF_ITS_TRAINER = NotExercised(
    "of the cases of one strategy, framework and model the first one's checkpoints are observed"
)
OF_THE_FIRST = NotExercised(
    "of gathers, damage, missing leaves and saves in the background, the first case of its kind is observed"
)
OTHER_RATE = 1 + 2.0**-6
"""By how much rates that the state shows differ from those of ``init`` when it is saved: a restore may take these."""

SAVING = 5.0
"""Seconds after which a restore that failed is tried again: what it failed for may have been on its way."""

NAMES = ("the saved state", "the restored state")


@dataclass(frozen=True)
class Checkpoints(Facet):
    """The state after `STEPS` steps, saved and restored: ``moved`` names the leaves that are placed otherwise than
    before training, ``retyped`` those of another dtype or shape, ``whole`` those that rest split, and of which one
    device held all while they were saved or restored. ``continued`` compares loss and state of one more step from both.

    ``refused`` is what `restore` makes of the same checkpoint without one leaf: without its first, and its last.
    ``damaged`` is what it makes of it where one file is not whole. ``elsewhere`` is the same checkpoint, restored onto
    another mesh or by another strategy, and of the first case of its kind (`first_of_its_kind`) also saved there, and
    restored by this one. ``background`` is of saves of the state after one more step. ``whole``, ``refused``,
    ``damaged`` and ``background`` take longer than all others, and are those of the first case of its kind; all are of
    the first of its strategy, framework and model (`first_of_its_trainer`).
    """

    whole: Seen[tuple[str, ...]]
    restored: Seen[Verdict]
    moved: Seen[tuple[str, ...]]
    retyped: Seen[tuple[str, ...]]
    continued: Seen[Verdict]
    refused: Seen[tuple[Refused, ...]]
    damaged: Seen[tuple[Damaged, ...]]
    elsewhere: Seen[tuple[Resharded, ...]]
    background: BackgroundSaves


def observe_checkpoints(subject: Subject, state: Any, where: dict[str, tuple[Any, int]]) -> tuple[Checkpoints, Any]:
    """The facet, and the state that training goes on from: this one or, where it was trained on, the next one.

    ``where`` is the layout that the state had before training.
    """
    if not subject.checkpoints:
        return Checkpoints.unseen(NOT_ASKED), state
    if not first_of_its_trainer(subject.case, subject.cases):
        return Checkpoints.unseen(OF_ITS_TRAINER), state
    if absent := [member for member in ("save", "restore") if not subject.has(member)]:
        return Checkpoints.unseen(NotSupported(f"the strategy has no {' and no '.join(absent)}")), state
    with tempfile.TemporaryDirectory(prefix="meshproof-", ignore_cleanup_errors=True) as own:
        folder = Path(gathered(own)[0])
        if not all(gathered(folder.is_dir())):
            return Checkpoints.unseen(NO_COMMON_FOLDER), state
        seen = _observe(subject, with_rates_times(state, OTHER_RATE), where, folder)
        subject.agree()  # no process removes what another one still reads
        return seen


def _observe(subject: Subject, state: Any, where: dict[str, tuple[Any, int]], folder: Path) -> tuple[Checkpoints, Any]:
    whole = folder / "whole"
    saved = subject.attempt(lambda: Saved(values_of(state, subject.model), kinds_of(state)))
    first = first_of_its_kind(subject.case, subject.cases)
    watch = watched if first else unwatched
    passed = subject.then(
        saved, lambda saved: _saved_and_restored(subject, state, partial(watch, state, saved.values), whole)
    )
    if isinstance(saved, Unseen) or isinstance(passed, Unseen):
        return Checkpoints.unseen(saved if isinstance(saved, Unseen) else passed), state
    restored, held_whole = passed
    values = subject.attempt(lambda: values_of(restored, subject.model))
    held = saved.values if isinstance(values, Unseen) else values  # what a restore has lost is no work of damage
    several = jax.distributed.is_initialized()
    among, alone = IN_ONE_PROCESS if several else OF_THE_FIRST, first and not several
    seen = Checkpoints(
        whole=held_whole if first else OF_THE_FIRST,
        restored=subject.then(
            values, lambda values: bitwise(saved.values, values, f"state after {STEPS} steps", NAMES)
        ),
        moved=subject.attempt(lambda: moved(where, layout_of(restored))),
        retyped=subject.attempt(lambda: retyped(saved.kinds, kinds_of(restored))),
        continued=NOT_CONTINUED,
        refused=subject.attempt(lambda: observe_missing(subject, folder, held)) if alone else among,
        damaged=subject.attempt(lambda: observe_damage(subject, whole, held)) if alone else among,
        elsewhere=subject.attempt(lambda: observe_resharding(subject, whole, saved, where, first)),
        background=BackgroundSaves.unseen(NOT_CONTINUED if alone else among),
    )
    further = subject.attempt(lambda: _further(subject, state))
    if isinstance(further, Unseen):
        return replace(seen, continued=further, background=BackgroundSaves.unseen(further)), state
    seen = replace(seen, continued=subject.attempt(lambda: _compare(further[1], _further(subject, restored)[1])))
    if not alone:
        return seen, further[0]
    largest = max((file.stat().st_size for file in whole.rglob("*") if file.is_file()), default=0)
    background, state = observe_background_saves(subject, further[0], folder, largest)
    return replace(seen, background=background), state


def _saved_and_restored(subject: Subject, state: Any, watch: Callable[..., Any], folder: Path) -> Any:
    """The restored state, and each split leaf of which a device held all meanwhile."""
    _, whole = watch("save", lambda: subject.strategy.save(state, folder))
    try:
        restored, again = watch("restore", lambda: subject.strategy.restore(folder))
        return restored, (*whole, *again)
    except Exception as error:
        if jax.distributed.is_initialized() or not _restores_later(subject, folder):
            raise
        told = f"expected a restored state, saw {type(error).__name__} where save had just returned"
        return Failed(f"{told}, and {SAVING:g} s later a state: let save wait for what it starts")


def _restores_later(subject: Subject, folder: Path) -> bool:
    time.sleep(SAVING)
    try:
        subject.strategy.restore(folder)
    except Exception:
        return False
    return True


def _compare(one: Leaves, other: Leaves) -> Verdict:
    part = f"loss of step {STEPS + 1} and the state after it"
    return bitwise(one, other, part, ("the run that went on", "the restored run"))


def _further(subject: Subject, state: Any) -> tuple[Any, Leaves]:
    state, metrics = state_and_metrics(subject.strategy.train_step(state, subject.batches[0]))
    return state, {"the loss": np.array(metrics["loss"]), **values_of(state, subject.model)}
