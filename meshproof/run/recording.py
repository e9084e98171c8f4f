"""The record of a run, built from what was observed and what the tests found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any, TypeVar

from meshproof.cases import Case, has_member
from meshproof.contract import ReferenceTrajectory, Trajectory
from meshproof.hlo.executions import product_of, sum_of
from meshproof.hlo.schedule import overlap
from meshproof.judging.records import Record
from meshproof.measures.layout import mesh_axes
from meshproof.measures.trajectories import judge_trajectory
from meshproof.observing.brought_truth import digest
from meshproof.observing.layouts import Layouts
from meshproof.observing.observation import Observation, Outcome
from meshproof.observing.programs import Program
from meshproof.observing.seen import Facet, Failed, NotSupported, Seen, Unseen
from meshproof.report.document import SCHEMA, STATUSES

T = TypeVar("T")


def build_report(
    implementation: str,
    environments: Mapping[str, Any],
    clauses: Mapping[str, str],
    records: Iterable[Record],
    cases: Sequence[Mapping[str, Any]],
    run: Mapping[str, Any],
    unmatched: Sequence[Mapping[str, Any]] = (),
    listed: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """The report as plain JSON data; infinite and undefined numbers become ``null``.

    ``environments`` are those of the targets, by name. ``cases`` are made by `case_entry`. ``run`` is how it was
    started and whether it finished. ``unmatched`` are the expectations that cover no test. ``listed`` are the
    ``operations`` and ``programs`` of a table, as `meshproof.operations.recording` makes their entries.
    """
    report = {
        "schema": SCHEMA,
        "environment": _environment({name: told for name, told in environments.items() if isinstance(told, dict)}),
        "implementation": implementation,
        "run": dict(run),
        "clauses": [_clause(clause, statement, list(records)) for clause, statement in sorted(clauses.items())],
        "cases": list(cases),
        "unmatched_expectations": list(unmatched),
        **(listed or {}),
    }
    return _finite(report)  # type: ignore[no-any-return]


def _environment(known: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The first target's, with the devices and flags of all; ``None`` if none was described."""
    if not known:
        return None
    own = ("platform", "device_kind", "device_count", "xla_flags", "libtpu_init_args")
    targets = {name: {key: told[key] for key in own} for name, told in known.items()}
    return {**next(iter(known.values())), "targets": targets}


def _clause(clause: str, statement: str, records: list[Record]) -> dict[str, Any]:
    own = [record for record in records if record.clause == clause]
    margins = [record.margin for record in own if record.margin is not None]
    found = {record.status for record in own}
    return {
        "id": clause,
        "statement": statement,
        "status": next((status for status in STATUSES if status in found), "not-exercised"),
        "tests": [
            {key: value for key, value in asdict(record).items() if key not in ("clause", "statement")}
            for record in own
        ],
        "worst_margin": max(margins, default=None),
    }


def case_entry(case: Case, outcome: Outcome, truth: Seen[ReferenceTrajectory] | None) -> dict[str, Any]:
    """A case's part of the report: its observation, and its distance from its truth, if it has one."""
    entry: dict[str, Any] = {
        "id": case.id,
        "strategy": case.strategy.name,
        "framework": case.strategy.framework,
        "model": case.strategy.model,
        "mesh": case.mesh,
        "target": case.target,
        "truth": _source(case, truth),
    }
    empty: dict[str, Any] = {name: [] for name in ("losses", "expected_losses", "warnings")}
    empty |= dict.fromkeys(("digest", "collectives", "forward_collectives"))
    empty |= {"errors": {}, "shardings": {}, "memory": None, "flops": None, "compile_seconds": None}
    if not isinstance(outcome, Observation):
        return entry | empty | {"problem": outcome.reason}
    return entry | empty | _observed(outcome, case.mesh, truth) | {"problem": _problem(outcome)}


def _source(case: Case, truth: Seen[ReferenceTrajectory] | None) -> str | None:
    """Where the case's truth comes from: ``brought``, ``single_device``, or ``None`` if it has none."""
    if not isinstance(truth, ReferenceTrajectory):
        return None
    return "brought" if has_member(case.strategy, "truth") else "single_device"


def _observed(seen: Observation, mesh: Mapping[str, int], truth: Seen[ReferenceTrajectory] | None) -> dict[str, Any]:
    observed: dict[str, Any] = {"warnings": [asdict(warned) for warned in seen.warnings]}
    steps, gradients = _known(seen.training.steps), _known(seen.gradients.values)
    if steps is not None:
        observed["losses"] = [step.loss for step in steps]
        observed["digest"] = digest([steps[-1].parameters, steps[-1].optimizer_state])
    if steps is not None and isinstance(truth, ReferenceTrajectory):
        observed["expected_losses"] = [step.loss for step in truth.value.steps]
        verdicts = judge_trajectory(Trajectory(gradients or {}, steps), truth)
        observed["errors"] = {
            f"{verdict.part}: {record.path}": {
                "error": record.error,
                "allowed": record.allowed,
                "signal": record.signal,
                "margin": record.margin,
            }
            for verdict in verdicts
            for record in verdict.records
        }
    return observed | {
        "shardings": _shardings(seen.training.layouts, mesh),
        "forward_collectives": _collectives(seen.programs.forward),
        "collectives": _collectives(seen.programs.step),
        "memory": _memory(seen.programs.step, seen.start.layouts),
        "schedule": _schedule(seen.programs.step),
        "usual": _usual(seen.programs.usual),
        "flops": _known(seen.programs.step.flops),
        "product_flops": _known(seen.programs.step.product_flops),
        "compile_seconds": _known(seen.programs.step.compile_seconds),
    }


def _known(seen: Seen[T]) -> T | None:
    return None if isinstance(seen, Unseen) else seen


def _collectives(program: Program) -> list[dict[str, Any]] | None:
    collectives = _known(program.collectives)
    return None if collectives is None else [entry.recorded() for entry in collectives]


def _memory(step: Program, state: Layouts) -> dict[str, int] | None:
    """The step's buffers beside the state that it takes; ``None`` where the step was not compiled."""
    if isinstance(step.compile_seconds, Unseen):
        return None
    held = _known(state.state_bytes)
    return ({} if held is None else {"state": held}) | _buffers(step)


def _buffers(program: Program) -> dict[str, int]:
    """The sizes that its compiler tells."""
    buffers = _known(program.memory)
    return {} if buffers is None else {name: size for name, size in asdict(buffers).items() if size is not None}


def _schedule(step: Program) -> dict[str, Any] | None:
    """Bytes on the wire by what could run meanwhile, and what loops copy; ``None`` where no schedule was looked at."""
    flights, copies = _known(step.flights), _known(step.loop_copies)
    if flights is None or copies is None:
        return None
    copied = [product_of(copy.shape.bytes, copy.executions) for copy in copies]
    return asdict(overlap(flights)) | {"copied_in_loops": reduce(sum_of, [0, *copied])}


def _usual(step: Program) -> dict[str, Any] | None:
    """The step at the default precision of products; ``None`` where it was not compiled."""
    collectives = _collectives(step)
    return None if collectives is None else {"collectives": collectives, "memory": _buffers(step)}


def _problem(seen: Observation) -> str | None:
    """Why parts of the case were not observed; ``None`` if all were."""
    places: dict[str, list[str]] = {}
    for place, reason in _unseen(seen):
        places.setdefault(reason, []).append(place)
    return "; ".join(f"{', '.join(where)}: {reason}" for reason, where in places.items()) or None


def _unseen(value: Facet | Seen[Any], place: str = "") -> Iterator[tuple[str, str]]:
    """Every place where nothing was seen, and why; a facet of which no value was seen, for one reason, is one place."""
    if isinstance(value, NotSupported | Failed):
        yield place, value.reason
    elif isinstance(value, Facet):
        values = vars(value)
        first, *others = values.values()
        if isinstance(first, NotSupported | Failed) and all(other is first for other in others):
            yield place, first.reason
            return
        for name, part in values.items():
            yield from _unseen(part, f"{place}.{name}".lstrip("."))


def _shardings(after: Layouts, mesh: Mapping[str, int]) -> dict[str, Any]:
    """Layouts by canonical path (``optimizer_state/…`` if a parameter has the same one), else by JAX's key path."""
    parameters, state, auxiliary, arrays = (
        {leaf.path: leaf for leaf in _known(part) or ()}
        for part in (after.parameters, after.optimizer_state, after.auxiliary, after.arrays)
    )
    named = parameters | {
        f"optimizer_state/{path}" if path in parameters else path: leaf for path, leaf in state.items()
    }
    named |= {f"auxiliary/{path}": leaf for path, leaf in auxiliary.items()}
    return {
        path: {
            "spec": leaf.spec,
            "shape": leaf.shape,
            "axes": mesh_axes(leaf, mesh),
            "shard_shape": leaf.shards[0].shape if leaf.shards else None,
        }
        for path, leaf in (named or arrays).items()
    }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
