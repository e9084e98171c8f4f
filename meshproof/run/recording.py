"""The record of a run, built from what was observed and what the tests found."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import Judgement, Step, Trajectory
from meshproof.judging.records import Record
from meshproof.measures.layout import mesh_axes
from meshproof.measures.numerics import judge_trajectory
from meshproof.observing.observation import Layouts, Observation, Outcome, Program, Run, Seen
from meshproof.report.document import SCHEMA, STATUSES


def build_report(
    implementation: str,
    environments: Sequence[Any],
    clauses: Mapping[str, str],
    records: Iterable[Record],
    cases: Sequence[Mapping[str, Any]],
    run: Mapping[str, Any],
    unmatched: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The report as plain JSON data; infinite and undefined numbers become ``null``.

    ``cases`` are made by `case_entry`. ``run`` is how it was started and whether it came to its end. ``unmatched`` are
    the expectations that no test is covered by.
    """
    known = [environment for environment in environments if isinstance(environment, dict)]
    report = {
        "schema": SCHEMA,
        "environment": known[0] if known else None,
        "implementation": implementation,
        "run": dict(run),
        "clauses": [_clause(clause, statement, list(records)) for clause, statement in sorted(clauses.items())],
        "cases": list(cases),
        "unmatched_expectations": list(unmatched),
    }
    return _finite(report)  # type: ignore[no-any-return]


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


def case_entry(case: Case, outcome: Outcome, truth: Seen[Judgement] | None) -> dict[str, Any]:
    """A case's part of the report: what was observed of it, and how far that is from its truth, where there is one."""
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


def _source(case: Case, truth: Seen[Judgement] | None) -> str | None:
    """Who says what the numbers must be, if anybody does."""
    if not isinstance(truth, Judgement):
        return None
    return "brought" if has_member(case.strategy, "truth") else "single_device"


def _observed(seen: Observation, mesh: Mapping[str, int], truth: Seen[Judgement] | None) -> dict[str, Any]:
    observed: dict[str, Any] = {"warnings": [asdict(warned) for warned in seen.warnings]}
    if isinstance(seen.run, Run):
        observed["losses"] = [step.loss for step in seen.run.steps]
        observed["digest"] = _digest(seen.run.steps[-1])
    if isinstance(seen.after, Layouts):
        observed["shardings"] = _shardings(seen.after, mesh)
    if isinstance(seen.run, Run) and isinstance(truth, Judgement):
        gradients = seen.gradients if isinstance(seen.gradients, dict) else {}
        observed["expected_losses"] = [step.loss for step in truth.value.steps]
        verdicts = judge_trajectory(Trajectory(gradients, seen.run.steps), truth)
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
    if isinstance(seen.forward, Program) and isinstance(seen.forward.collectives, tuple):
        observed["forward_collectives"] = [asdict(entry) for entry in seen.forward.collectives]
    if isinstance(seen.step, Program):
        observed |= _program(seen.step, seen.before)
    return observed


def _program(step: Program, state: Seen[Layouts]) -> dict[str, Any]:
    memory = {"state": state.state_bytes} if isinstance(state, Layouts) else {}
    return {
        "collectives": [asdict(entry) for entry in step.collectives] if isinstance(step.collectives, tuple) else None,
        "memory": memory | (asdict(step.memory) if hasattr(step.memory, "aliased") else {}),
        "flops": step.flops,
        "compile_seconds": step.compile_seconds,
    }


def _problem(seen: Observation) -> str | None:
    """What kept parts of the case from being seen."""
    reasons = [f"{name}: {value.reason}" for name, value in vars(seen).items() if hasattr(value, "reason")]
    return "; ".join(reasons) or None


def _shardings(after: Layouts, mesh: Mapping[str, int]) -> dict[str, Any]:
    """By canonical path, of an optimizer state that repeats the parameters' paths under its own name; else by JAX's."""
    parameters, state = (
        {leaf.path: leaf for leaf in part} if isinstance(part, tuple) else {}
        for part in (after.parameters, after.optimizer_state)
    )
    named = parameters | {
        f"optimizer_state/{path}" if path in parameters else path: leaf for path, leaf in state.items()
    }
    leaves = named or {leaf.path: leaf for leaf in after.arrays}
    return {
        path: {
            "spec": leaf.spec,
            "shape": leaf.shape,
            "axes": mesh_axes(leaf, mesh),
            "shard_shape": leaf.shards[0].shape if leaf.shards else None,
        }
        for path, leaf in leaves.items()
    }


def _digest(step: Step) -> str:
    """Of every bit that a step left behind: equal for equal bits."""
    found = hashlib.sha256()
    for part in (step.parameters, step.optimizer_state):
        for path, value in part.items():
            found.update(f"{path} {value.dtype} {value.shape}".encode())
            found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
