"""What `evaluate` gives over a set whose last batch is short: in the state that training leaves, and on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshproof.cases import has_member
from meshproof.contract import Batch, Leaves, nest
from meshproof.observing.alone import on_one_device
from meshproof.observing.other_states import NotHeldError, with_values_of
from meshproof.observing.rounding import as_held, deviation, moved
from meshproof.observing.seen import NotSupported
from meshproof.observing.subject import Subject

Totals = dict[str, tuple[float, int]]
"""Each metric's sum over the examples, and their number."""

DRAWS, WIDTH = 16, 2.0
"""As for the probes of `single_device_truth`."""


def evaluation_set(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """What is evaluated: these batches, of the last one only a third, so that some devices have fewer examples."""
    *whole, last = batches
    return (*whole, {field: value[: len(value) // 3] for field, value in last.items()})


def evaluate(trainer: Any, state: Any, batches: Sequence[Batch]) -> Totals:
    """Each metric over all batches."""
    totals: Totals = {}
    for batch in batches:
        for name, (value, examples) in trainer.evaluate(state, batch).items():
            so_far, seen = totals.get(name, (0.0, 0))
            totals[name] = so_far + float(value), seen + int(examples)
    return totals


def evaluate_alone(
    subject: Subject, parameters: Leaves, auxiliary: Leaves
) -> tuple[Totals, dict[str, float]] | NotSupported:
    """What one device gives with these values, and the deviation of each sum by float32 rounding, measured."""
    trainer = on_one_device(subject.strategy, "float32")
    if not has_member(trainer, "evaluate"):
        return NotSupported("what single_device returns has no evaluate")
    batches = evaluation_set(subject.host_batches)
    if auxiliary and not has_member(trainer, "auxiliary"):
        return NotSupported("what single_device returns has no auxiliary: it may evaluate by more than parameters")

    def run(parameters: Leaves, auxiliary: Leaves) -> Totals:
        state = trainer.load(nest(parameters))
        if auxiliary:
            state = with_values_of(state, trainer.auxiliary(state), auxiliary)
        return evaluate(trainer, state, batches)

    start = [as_held(nest(values)) for values in (parameters, auxiliary)]
    try:
        totals = run(*start)
    except NotHeldError as error:
        return NotSupported(str(error))
    drawn = [run(*moved(start, draw, subject.case.contract.compute_dtype)) for draw in range(DRAWS)]
    roundings = subject.case.devices * len(batches)
    of = {
        name: WIDTH * float(deviation(np.float32(value), [draw[name][0] for draw in drawn], 2 * roundings))
        for name, (value, _) in totals.items()
    }
    return totals, of
