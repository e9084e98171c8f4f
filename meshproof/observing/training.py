"""Several train steps and what they leave, a second run of the same, and one step more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from meshproof.contract import Batch, Part, Step, leaves
from meshproof.measures.numerics import bitwise
from meshproof.measures.verdicts import Verdict
from meshproof.observing.compilations import compilations_of
from meshproof.observing.layouts import Layouts, observe_layouts
from meshproof.observing.members import loss_of, other_metrics, scalar, state_and_metrics
from meshproof.observing.seen import Facet, Failed, Seen
from meshproof.observing.state import array_leaves, finite_state, layout_of, moved, replicas
from meshproof.observing.subject import STEPS, Subject

STATE: tuple[Part, ...] = ("parameters", "optimizer_state")
Compilations = tuple[tuple[str, ...], ...]
Losses = tuple[Seen[float], ...]


@dataclass(frozen=True)
class Training(Facet):
    """`STEPS` train steps: each one's numbers, what JAX traced and compiled during each (event names), the last state.

    ``losses`` are those of the forward pass, in the state and on the batch that each step was given. ``moved`` names
    the leaves whose layout is not what it was before, with both; ``finite`` and ``replicas`` judge the values of the
    last state. ``evaluation`` has each metric's sum and count in that state. ``rerun`` says whether a second run leaves
    the same bits, ``implicit_transfers`` what one more step raises where arrays may not be moved between host and
    devices implicitly.
    """

    steps: Seen[tuple[Step, ...]]
    losses: Seen[Losses]
    compilations: Seen[Compilations]
    layouts: Layouts
    moved: Seen[tuple[str, ...]]
    finite: Seen[Verdict]
    replicas: Seen[Verdict]
    evaluation: Seen[dict[str, tuple[float, int]]]
    rerun: Seen[Verdict]
    implicit_transfers: Seen[tuple[str, ...]]


def observe_training(subject: Subject, state: Any) -> Training:
    """Training from this state, which the first step donates."""
    where = layout_of(state)
    final, steps, losses, compilations = _train(subject, state)
    return Training(
        steps=steps,
        losses=losses,
        compilations=compilations,
        layouts=observe_layouts(subject, final),
        moved=subject.attempt(lambda: moved(where, layout_of(final))),
        finite=subject.attempt(lambda: finite_state(subject.held(final))),
        replicas=subject.attempt(lambda: replicas(_shown(subject, final))),
        evaluation=subject.attempt(lambda: _evaluate(subject, final), "evaluate"),
        rerun=subject.attempt(lambda: _rerun(subject, final)),
        implicit_transfers=subject.attempt(lambda: _implicit_transfers(subject, final), "shard_batch"),
    )


def _train(subject: Subject, state: Any) -> tuple[Any, Seen[tuple[Step, ...]], Seen[Losses], Seen[Compilations]]:
    """The state that the steps leave, or the last one that was whole, and what was seen of them."""
    steps, losses, compilations = [], [], []
    try:
        for batch in subject.batches:
            losses.append(subject.attempt(partial(_forward, subject, state, batch), "loss"))
            with compilations_of() as events:
                state, metrics = state_and_metrics(subject.strategy.train_step(state, batch))
                jax.block_until_ready(metrics)
            compilations.append(tuple(events))
            steps.append(_numbers(subject, state, metrics))
    except Exception as error:
        failed = Failed(f"train step {len(steps) + 1} raised {type(error).__name__}: {error}")
        return state, failed, failed, failed
    return state, tuple(steps), tuple(losses), tuple(compilations)


def _forward(subject: Subject, state: Any, batch: Any) -> float:
    return scalar(subject.ask("loss", state, batch), "loss")


def _numbers(subject: Subject, state: Any, metrics: Mapping[str, Any]) -> Step:
    parameters, moments, auxiliary = (
        subject.host(subject.tree(part, state)) if subject.has(part) else {} for part in (*STATE, "auxiliary")
    )
    return Step(loss_of(metrics), parameters, moments, other_metrics(metrics), auxiliary)


def _shown(subject: Subject, state: Any) -> list[tuple[str, jax.Array]]:
    """The arrays of a state, and those on devices of the canonical trees where these are made of it."""
    held = {id(leaf[1]): leaf for leaf in subject.held(state)}
    parts = [part for part in STATE if subject.has(part) and not subject.has("at_rest")]
    made = [leaf for part in parts for leaf in leaves(subject.tree(part, state)) if isinstance(leaf[1], jax.Array)]
    return [*held.values(), *(leaf for leaf in made if id(leaf[1]) not in held)]


def _evaluate(subject: Subject, state: Any) -> dict[str, tuple[float, int]]:
    totals: dict[str, tuple[float, int]] = {}
    for batch in evaluation_set(subject.host_batches):
        for name, (value, examples) in subject.strategy.evaluate(state, batch).items():
            so_far, seen = totals.get(name, (0.0, 0))
            totals[name] = so_far + float(value), seen + int(examples)
    return totals


def evaluation_set(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """What is evaluated: these batches, of the last one only a third, so that some devices have fewer examples."""
    *whole, last = batches
    return (*whole, {field: value[: len(value) // 3] for field, value in last.items()})


def _rerun(subject: Subject, first: Any) -> Verdict:
    expected = {path: np.asarray(array) for path, array in subject.held(first)}
    state = subject.fresh()
    for batch in subject.batches:
        state, _ = subject.strategy.train_step(state, batch)
    seen = {path: np.asarray(array) for path, array in array_leaves(state)}
    return bitwise(expected, seen, f"state after {STEPS} steps", ("the first run", "the second run"))


def _implicit_transfers(subject: Subject, state: Any) -> tuple[str, ...]:
    with jax.transfer_guard("disallow"):
        try:
            jax.block_until_ready(subject.strategy.train_step(state, subject.batches[-1])[1])
        except Exception as error:
            if "transfer" not in str(error):
                raise
            return (str(error).splitlines()[0],)
    return ()
