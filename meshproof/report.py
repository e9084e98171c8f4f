"""The record of a run: one JSON document, validated against the schema beside this file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from meshproof.cases import Case, has_member
from meshproof.contract import Judgement, Trajectory
from meshproof.files import replace_text
from meshproof.judging import Record, Status
from meshproof.layout import LeafLayout
from meshproof.numerics import judge_trajectory
from meshproof.observation import Layouts, Observation, Program, Run, Seen
from meshproof.observer import Outcome

SCHEMA = 1
"""The version of the report's format; raised whenever a reader of the old one would misread the new one."""

STATUSES: tuple[Status, ...] = ("failed", "expected-failure", "proved", "not-supported", "not-exercised")
"""A clause has the first of these that any of its tests has."""


def build_report(
    implementation: str,
    environments: Sequence[Any],
    clauses: Mapping[str, str],
    records: Iterable[Record],
    seen: Mapping[Case, Outcome],
    truths: Mapping[Case, Seen[Judgement]],
    unmatched: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The report as plain JSON data; infinite and undefined numbers become ``null``.

    ``unmatched`` are the expectations that no test is covered by.
    """
    known = [environment for environment in environments if isinstance(environment, dict)]
    report = {
        "schema": SCHEMA,
        "environment": known[0] if known else None,
        "implementation": implementation,
        "clauses": [_clause(clause, statement, list(records)) for clause, statement in sorted(clauses.items())],
        "cases": [_case(case, outcome, truths.get(case)) for case, outcome in seen.items()],
        "unmatched_expectations": list(unmatched),
    }
    return _finite(report)  # type: ignore[no-any-return]


def count_statuses(report: Mapping[str, Any]) -> dict[Status, int]:
    """How many clauses have each of the five statuses."""
    return {status: sum(clause["status"] == status for clause in report["clauses"]) for status in STATUSES}


def schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    text = files("meshproof").joinpath("report.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


def validate(report: Any) -> None:
    """Raises ``jsonschema.ValidationError``, of what is furthest from the schema, where this is no report."""
    error = jsonschema.exceptions.best_match(_validator().iter_errors(report))
    if error is not None:
        raise error


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Validate and write. Raises ``jsonschema.ValidationError``."""
    validate(report)
    replace_text(path, json.dumps(report, indent=1))


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


def _case(case: Case, outcome: Outcome, truth: Seen[Judgement] | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": case.id,
        "strategy": case.strategy.name,
        "framework": case.strategy.framework,
        "model": case.strategy.model,
        "mesh": case.mesh,
        "target": case.target,
        "truth": _source(case, truth),
    }
    empty: dict[str, Any] = {name: [] for name in ("losses", "collectives", "forward_collectives", "warnings")}
    empty |= {"errors": {}, "shardings": {}, "memory": None, "flops": None, "compile_seconds": None}
    if not isinstance(outcome, Observation):
        return entry | empty | {"problem": outcome.reason}
    return entry | empty | _observed(outcome, truth) | {"problem": _problem(outcome)}


def _source(case: Case, truth: Seen[Judgement] | None) -> str | None:
    """Who says what the numbers must be, if anybody does."""
    if not isinstance(truth, Judgement):
        return None
    return "brought" if has_member(case.strategy, "truth") else "single_device"


def _observed(seen: Observation, truth: Seen[Judgement] | None) -> dict[str, Any]:
    observed: dict[str, Any] = {"warnings": list(seen.warnings)}
    if isinstance(seen.run, Run):
        observed["losses"] = [step.loss for step in seen.run.steps]
    if isinstance(seen.after, Layouts):
        observed["shardings"] = _shardings(seen.after)
    if isinstance(seen.run, Run) and isinstance(truth, Judgement):
        gradients = seen.gradients if isinstance(seen.gradients, dict) else {}
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
        "collectives": [asdict(entry) for entry in step.collectives] if isinstance(step.collectives, tuple) else [],
        "memory": memory | (asdict(step.memory) if hasattr(step.memory, "aliased") else {}),
        "flops": step.flops,
        "compile_seconds": step.compile_seconds,
    }


def _problem(seen: Observation) -> str | None:
    """What kept parts of the case from being seen."""
    reasons = [f"{name}: {value.reason}" for name, value in vars(seen).items() if hasattr(value, "reason")]
    return "; ".join(reasons) or None


def _shardings(after: Layouts) -> dict[str, Any]:
    """By canonical path, of an optimizer state that repeats the parameters' paths under its own name; else by JAX's."""
    parameters, state = (
        {leaf.path: leaf for leaf in part} if isinstance(part, tuple) else {}
        for part in (after.parameters, after.optimizer_state)
    )
    named = parameters | {
        f"optimizer_state/{path}" if path in parameters else path: leaf for path, leaf in state.items()
    }
    return {path: _sharding(leaf) for path, leaf in (named or {leaf.path: leaf for leaf in after.arrays}).items()}


def _sharding(leaf: LeafLayout) -> dict[str, Any]:
    return {"spec": leaf.spec, "shard_shape": leaf.shards[0].shape if leaf.shards else None}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
