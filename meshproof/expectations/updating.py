"""A file of expectations, rewritten from the report of a run: entries whose tests still fail keep their text.

An entry is a piece of text with the comments above and in it, which are kept or removed with it. A text that cannot be
cut into the entries that TOML finds in it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import tomlkit

from meshproof.expectations.entries import TABLE, TODO, Expectation, ExpectationError, parse, text_of
from meshproof.files import replace_text

START = re.compile(rf"^(?:[ \t]*#.*\n)*[ \t]*\[\[[ \t]*{TABLE}[ \t]*\]\]", re.MULTILINE)
KEPT_OF_STACK = ("jax", "jaxlib", "flax")
"""The packages whose versions a new entry names."""

Test = dict[str, Any]


def update(report: Mapping[str, Any], path: Path) -> list[str]:
    """Rewrite a file; returns a line per change. A file that does not exist has no entries.

    Entries for other stacks than the report's stay as they are. Raises `ExpectationError`.
    """
    text = text_of(path, str(path)) if path.exists() else ""
    entries = parse(text, str(path))
    head, blocks = cut(text, entries, str(path))
    known = Known(report)
    kept, changes = [head], []
    for entry, block in zip(entries, blocks, strict=True):
        covered = known.covered(entry)
        left = [test["id"] for test in covered if not passed(test)]
        if known.is_unmatched(entry):
            changes.append(f"removed {entry}: it matches no test: {entry.test}")
        elif entry.outcome == "flaky" or len(left) == len(covered):
            kept.append(block)
        else:
            kept += [narrowed(block, test) for test in left]
            passes = f"{len(covered) - len(left)} of {len(covered)} tests pass: {entry.test}"
            changes.append(f"removed {entry}: {passes}" if not left else f"narrowed {entry} to {len(left)}: {passes}")
    expected = {test["id"] for entry in entries for test in known.covered(entry)}
    for test in known.tests:
        if test["status"] == "failed" and not passed(test) and test["id"] not in expected:
            kept.append(known.new_block(test))
            changes.append(f"added {test['id']}: fill in its reason and url; until then the file is refused")
    if changes:
        replace_text(path, "\n\n".join(part.strip("\n") for part in kept if part.strip()) + "\n")
    return changes


class Known:
    """The tests of a report: status, target and devices."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        self.environment = report["environment"]
        tests: list[Test] = [test for clause in report["clauses"] for test in clause["tests"]]
        self.tests = sorted(tests, key=lambda test: test["id"])
        self.cases = {case["id"]: case for case in report["cases"]}
        self.unmatched = report.get("unmatched_expectations", [])

    def covered(self, entry: Expectation) -> list[Test]:
        """The tests that an entry covers; none if it is for another stack."""
        return [test for test in self.tests if self.covers(entry, test)] if entry.speaks_of(self.environment) else []

    def covers(self, entry: Expectation, test: Test) -> bool:
        """Whether an entry covers a test, as in the run. The platform of a second target is not in the report: no."""
        case = self.cases.get(test["case"])
        if case is None:
            return entry.covers(test["id"], None, None)
        native = self.environment["platform"] if self.environment["platform"] != "cpu" else None
        platform = native if case["target"] == "native" else case["target"].partition(":")[0]
        return entry.covers(test["id"], case["target"], prod(case["mesh"].values())) and entry.runs_on(platform)

    def is_unmatched(self, entry: Expectation) -> bool:
        """Whether the run found no test of this entry."""
        return any(entry.test == other["test"] and entry.when == other["when"] for other in self.unmatched)

    def new_block(self, test: Test) -> str:
        """An entry for a new failure, its reason and link still to be written."""
        versions = {name: f"=={self.environment[name]}" for name in KEPT_OF_STACK if self.environment[name]}
        target = self.cases[test["case"]]["target"] if test["case"] in self.cases else "cpu"
        when = tomlkit.inline_table()
        when.update(versions if target == "cpu" else versions | {"target": target})
        table = tomlkit.table()
        table.update({"test": test["id"], "when": when, "outcome": "xfail"})
        table.update({"reason": f"{TODO}: what fails upstream", "url": f"{TODO}: the link that says so"})
        document = tomlkit.document()
        document.append(TABLE, tomlkit.aot())
        document[TABLE].append(table)  # type: ignore[union-attr]
        return tomlkit.dumps(document)


def passed(test: Test) -> bool:
    """Whether the clause held, expected or not."""
    return test["status"] == "proved" or (test.get("expectation") or {}).get("status") == "xpassed"


def cut(text: str, entries: list[Expectation], file: str) -> tuple[str, list[str]]:
    """The text before the first entry, and the text of each entry with the comments above it."""
    starts = [match.start() for match in START.finditer(text)]
    head, *blocks = (text[start:end] for start, end in pairwise([0, *starts, len(text)]))
    try:
        found = [[contents(entry) for entry in parse(part, file)] for part in (head, *blocks)]
    except ExpectationError:
        found = []
    if found != [[], *([contents(entry)] for entry in entries)]:
        raise ExpectationError(f"{file}: cannot be rewritten: expected every entry to begin with a line [[{TABLE}]]")
    return head, blocks


def contents(entry: Expectation) -> dict[str, Any]:
    """The content of an entry, without its place in the file."""
    return {key: value for key, value in asdict(entry).items() if key not in ("file", "number")}


def narrowed(block: str, test: str) -> str:
    """The text of an entry, with one test id for its pattern."""
    document = tomlkit.parse(block)
    document[TABLE][0]["test"] = test  # type: ignore[index]
    return tomlkit.dumps(document)
