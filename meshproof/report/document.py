"""The record of a run: one JSON document, validated against the schema beside this file. Needs no JAX."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from packaging.version import InvalidVersion, Version

from meshproof.files import replace_text
from meshproof.report.schemas import flaw, parse_json

SCHEMA = 2
"""The version of the report's format; raised whenever a reader of the old one would misread the new one."""

Status = Literal["failed", "expected-failure", "proved", "not-supported", "not-exercised"]

STATUSES: tuple[Status, ...] = get_args(Status)
"""In order of precedence: a clause has the first that any of its tests has."""

SIGNS = {"proved": "✓", "failed": "✗", "expected-failure": "x", "not-supported": "–", "not-exercised": "?"}
"""The sign of each status in a matrix."""

PACKAGES = {
    "jax": "jax",
    "jaxlib": "jaxlib",
    "flax": "flax",
    "optax": "optax",
    "orbax": "orbax-checkpoint",
    "numpy": "numpy",
}
"""The distributions in a report's environment, by their short names."""

ORIGIN = " of "
"""Separates a version from its origin, if it was not installed from an index."""

VERSIONED = ("python", *PACKAGES)
"""The keys of a report's environment that are versions."""


class ReportError(ValueError):
    """No report can be read from a file; the message says why."""


def count_statuses(report: Mapping[str, Any]) -> dict[Status, int]:
    """The number of clauses by status."""
    return {status: sum(clause["status"] == status for clause in report["clauses"]) for status in STATUSES}


def describe_stack(environment: Mapping[str, Any] | None) -> str:
    """The stack of a report in one line: versions and devices."""
    if environment is None:
        return "stack: unknown, its description failed"
    versions = (f"{name} {environment[name]}" for name in VERSIONED if environment[name])
    devices = (f"{each['device_count']} × {each['device_kind']}" for each in targets_of(environment).values())
    return f"{', '.join(versions)} on {', '.join(devices)}"


def targets_of(environment: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The devices of each target of a run, by its name; those of the whole run where an older report has no names."""
    return environment.get("targets") or {"": environment}


def read_report(path: Path) -> dict[str, Any]:
    """A report as `write_report` writes it. Raises `ReportError`."""
    try:
        report = parse_json(path.read_text(encoding="utf-8"))
        json.dumps(report, ensure_ascii=False).encode()
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}; expected a report of a run") from error
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ReportError(f"{path}: this is not UTF-8 text: {error.reason}; expected a report of a run") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: this is not JSON, or not all of it: {error}; expected a report of a run") from error
    problem = _flaw(report) or _unknown_stack(report["environment"])
    if problem:
        raise ReportError(f"{path}: {problem}")
    return report  # type: ignore[no-any-return]


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Validate and write. Raises `ReportError`."""
    problem = _flaw(report)
    if problem:
        raise ReportError(problem)
    replace_text(path, json.dumps(report, indent=1))


def _flaw(report: Any) -> str | None:
    """Why a document is no report of this schema; ``None`` if it is one."""
    is_report = isinstance(report, dict) and not report.keys().isdisjoint(("clauses", "cases"))
    if is_report and isinstance(report.get("schema"), int) and report["schema"] != SCHEMA:
        told = "it has facts that the older had not, so nothing can convert one: run the suites of that stack again"
        if report["schema"] > SCHEMA:
            told = "it is of a newer Meshproof; update this one to read it"
        return f"a report of schema {report['schema']}; this meshproof reads schema {SCHEMA}: {told}"
    found = flaw(report, "report")
    return found and f"this is JSON, but no report: {found}"


def _unknown_stack(environment: Mapping[str, Any] | None) -> str | None:
    """Why a report's stack cannot be told; ``None`` if it can."""
    if environment is None:
        return "the report does not know its stack; expected one whose environment was described"
    for name in VERSIONED:
        installed = environment[name]
        try:
            Version(installed or "0")
        except InvalidVersion:
            return f"at environment.{name}: {installed!r} is no version; expected one, as in 0.10.2"
    return None
