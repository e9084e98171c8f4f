"""Several train steps and what they leave, a second run of the same, and one step more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from meshproof.contract import Leaves, Step
from meshproof.measures.numerics import bitwise
from meshproof.measures.verdicts import Verdict
from meshproof.observing.checkpoints import Checkpoints, observe_checkpoints
from meshproof.observing.compilations import COMPILED, compilations_of
from meshproof.observing.evaluations import Totals, evaluate, evaluate_alone, evaluation_set
from meshproof.observing.gathering import on_host
from meshproof.observing.layouts import Layouts, observe_layouts
from meshproof.observing.members import loss_of, origin, other_metrics, scalar, state_and_metrics, told
from meshproof.observing.seen import Facet, Failed, NotSupported, Seen, Unseen
from meshproof.observing.state import finite_state, infinite, layout_of, moved, replicas, retyped, types_of
from meshproof.observing.subject import LONG, STATE, STEPS, Subject

Compilations = tuple[tuple[str, ...], ...]
Losses = tuple[Seen[float], ...]


@dataclass(frozen=True)
class Later(Facet):
    """The second run, which goes on to `LONG` steps on the same batches in turns: what JAX traced and compiled in each
    of its steps after the first `STEPS`, and whether the values of its last state are finite and copies are one."""

    compilations: Seen[Compilations]
    finite: Seen[Verdict]
    replicas: Seen[Verdict]


@dataclass(frozen=True)
class Training(Facet):
    """`STEPS` train steps: each one's numbers, what JAX traced and compiled during each (event names), the last state.

    ``losses`` are those of the forward pass, in the state and on the batch that each step was given. ``moved`` names
    the leaves whose layout is not what it was before, with both, ``retyped`` those of another dtype or shape,
    ``made_otherwise`` those of which `init` makes another dtype or shape than the steps return; ``finite`` and
    ``replicas`` judge the values of the last state, ``unreached`` has those leaves of the optimizer state and the
    auxiliary state, by part and path, that begin with an infinity. ``evaluation`` has each metric's sum and count in
    the last state, ``evaluation_alone`` the same of one device, with the deviations of the sums. ``rerun`` says whether
    a second run leaves the same bits, ``later`` what became of it, ``checkpoints`` what becomes of the last state on
    disk, ``implicit_transfers`` what one more step raises where arrays may not be moved between host and devices
    implicitly.
    """

    steps: Seen[tuple[Step, ...]]
    losses: Seen[Losses]
    compilations: Seen[Compilations]
    layouts: Layouts
    moved: Seen[tuple[str, ...]]
    retyped: Seen[tuple[str, ...]]
    made_otherwise: Seen[tuple[str, ...]]
    finite: Seen[Verdict]
    unreached: Seen[Leaves]
    replicas: Seen[Verdict]
    evaluation: Seen[Totals]
    evaluation_alone: Seen[tuple[Totals, dict[str, float]]]
    rerun: Seen[Verdict]
    later: Later
    checkpoints: Checkpoints
    implicit_transfers: Seen[tuple[str, ...]]


def observe_training(subject: Subject, state: Any, made: Seen[dict[str, str]]) -> Training:
    """Training from this state, which the first step donates. ``made`` are the types of what `init` makes."""
    where, types = layout_of(state), types_of(state)
    began = subject.attempt(lambda: infinite(subject.held(state)))
    unreached = subject.then(began, lambda began: infinite(_kept(subject, state)) if began else {})
    final, steps, losses, compilations = _train(subject, state)
    if isinstance(compilations, tuple) and jax.process_count() == 1:
        later = {event for events in compilations[1:] for event in events}
        if later and later <= COMPILED:  # of a program that was traced before: no fault of a trainer compiles so
            compilations = subject.attempt(lambda: _compilations_alone(subject))
    again = subject.attempt(lambda: _again(subject))
    return Training(
        steps=steps,
        losses=losses,
        compilations=compilations,
        layouts=observe_layouts(subject, final),
        moved=subject.attempt(lambda: moved(where, layout_of(final))),
        retyped=subject.attempt(lambda: retyped(types, types_of(final))),
        made_otherwise=subject.then(made, lambda made: retyped(types_of(final), made)),
        finite=subject.then(began, lambda began: finite_state(subject.held(final), began)),
        unreached=unreached,
        replicas=subject.attempt(lambda: replicas(subject.shown(final))),
        evaluation=subject.attempt(
            lambda: evaluate(subject.strategy, final, evaluation_set(subject.host_batches)), "evaluate"
        ),
        evaluation_alone=_alone(subject, steps),
        rerun=subject.then(again, lambda state: _compare(subject, final, state)),
        later=_later(subject, again, began),
        checkpoints=(onward := observe_checkpoints(subject, final, where))[0],
        implicit_transfers=subject.attempt(lambda: _implicit_transfers(subject, onward[1]), "shard_batch"),
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
            subject.agree()
    except Exception as error:
        shows = "what shows the state after " if len(compilations) > len(steps) else ""
        failed = Failed(f"{shows}train step {len(steps) + 1} raised {told(error)} ({origin(error)})")
        subject.agree(failed)
        return state, failed, failed, failed
    return state, tuple(steps), tuple(losses), tuple(compilations)


def _forward(subject: Subject, state: Any, batch: Any) -> float:
    return scalar(subject.ask("loss", state, batch), "loss")


def _numbers(subject: Subject, state: Any, metrics: Mapping[str, Any]) -> Step:
    parameters, moments, auxiliary = (
        subject.host(subject.tree(part, state)) if subject.has(part) else {} for part in (*STATE, "auxiliary")
    )
    return Step(loss_of(metrics), parameters, moments, other_metrics(metrics), auxiliary)


def _kept(subject: Subject, state: Any) -> Iterator[tuple[str, Any]]:
    for part in ("optimizer_state", "auxiliary"):
        if subject.has(part):
            yield from ((f"{part}/{path}", array) for path, array in subject.host(subject.tree(part, state)).items())


def _compilations_alone(subject: Subject) -> Seen[Compilations]:
    """What is traced and compiled in a run before which nothing was lowered. Where a census lowered the step, JAX
    compiles the second one, too, if axes are explicit and `jax.set_mesh` is around each call (jax 0.10.2 and 0.12.0.1).
    """
    jax.clear_caches()
    return _train(subject, subject.fresh())[3]


def _alone(subject: Subject, steps: Seen[tuple[Step, ...]]) -> Seen[tuple[Totals, dict[str, float]]]:
    if not subject.case.is_own_judge or isinstance(steps, Unseen):
        return NotSupported("its run on one device is not its truth")
    last = steps[-1]
    return subject.attempt(
        lambda: evaluate_alone(subject, last.parameters, last.auxiliary), "evaluate", "parameters", "load"
    )


def _again(subject: Subject) -> Any:
    state = subject.fresh()
    for batch in subject.batches:
        state, _ = subject.strategy.train_step(state, batch)
    return state


def _later(subject: Subject, state: Any, began: Seen[Leaves]) -> Later:
    compilations = []
    if isinstance(state, Unseen):
        return Later.unseen(state)
    try:
        for number in range(STEPS, LONG):
            with compilations_of() as events:
                state, metrics = subject.strategy.train_step(state, subject.batches[number % STEPS])
                jax.block_until_ready(metrics)
            compilations.append(tuple(events))
            subject.agree()
    except Exception as error:
        failed = Failed(f"train step {STEPS + len(compilations) + 1} raised {told(error)}")
        subject.agree(failed)
        return Later.unseen(failed)
    return Later(
        compilations=tuple(compilations),
        finite=subject.then(began, lambda began: finite_state(subject.held(state), began)),
        replicas=subject.attempt(
            lambda: replace(replicas(subject.shown(state)), part=f"copies on several devices after {LONG} steps")
        ),
    )


def _compare(subject: Subject, first: Any, second: Any) -> Verdict:
    expected, seen = ({path: on_host(array) for path, array in subject.held(state)} for state in (first, second))
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
