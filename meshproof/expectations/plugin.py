"""Expectations in a run: an expected violation of a clause is no failure; a clause that holds against one is.

Which entries hold depends on the installed versions and on the cases: those for other versions, targets and platforms
are ignored. Only a violated clause can be expected; any other error of a test stays an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from meshproof.cases import REFERENCE
from meshproof.expectations.entries import Expectation, ExpectationError, read
from meshproof.judging.records import case_of, record_of
from meshproof.observing.stack import versions

NAME = "meshproof-expectations"
SUITES = "suites"
KNOWN = f"{SUITES}/expectations.toml"
"""The file for the reference implementation; not read for another one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--expectations``."""
    group = parser.getgroup("meshproof")
    text = f"what is known to fail, besides {KNOWN}; repeatable"
    group.addoption("--expectations", action="append", default=[], metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse, before the first test, what cannot be read."""
    files = {name: Path(name) for name in config.getoption("expectations")}
    known = config.rootpath / KNOWN
    if config.getoption("impl") == REFERENCE and known.exists():
        files[KNOWN] = known
    try:
        entries = [entry for name, path in files.items() for entry in read(path, name)]
    except ExpectationError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(Expectations(config, entries), NAME)


class Expectations:
    """The entries that hold for the installed versions, in one pytest process of a run."""

    def __init__(self, config: pytest.Config, entries: list[Expectation]) -> None:
        installed = versions()
        self.config = config
        self.live = [] if config.getoption("runxfail") else [entry for entry in entries if entry.speaks_of(installed)]
        self.platform = cache(self._platform)

    def _platform(self, target: str) -> str | None:
        if target != "native":
            return target.partition(":")[0]
        environment = self.conformance.observers[target].environment()
        return environment["platform"] if isinstance(environment, dict) else None

    @property
    def conformance(self) -> Any:
        """The run."""
        return self.config.pluginmanager.get_plugin("meshproof")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the entries without a test, before -k and -m deselect any."""
        if is_whole(self.config, items):
            judged = [entry for entry in self.live if is_judged(entry, self.conformance.targets)]
            self.conformance.unmatched = [
                asdict(entry) for entry in judged if not any(covers(entry, item) for item in items)
            ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Turn a violation that is expected into an expected failure, and a pass that is not into a failure."""
        report: Any = yield
        entries = self.covering(item) if item.get_closest_marker("clause") else []
        if not entries:
            return report  # type: ignore[no-any-return]
        record = record_of(item)
        strict = [entry for entry in entries if entry.outcome == "xfail"]
        status = record.expectation["status"] if record.expectation else "not-judged"
        if report.failed and call.when != "teardown" and call.excinfo.errisinstance(pytest.fail.Exception):  # type: ignore[union-attr]
            report.outcome, status = "skipped", "xfailed" if strict else "flaky"
            report.wasxfail = "; ".join(f"{entry.reason} ({entry.url})" for entry in entries)
        elif report.passed and call.when == "call":
            status = "xpassed" if strict else "flaky"
            if strict:
                report.outcome, report.longrepr = "failed", "\n".join(stale(entry, item.nodeid) for entry in strict)
        record.expectation = {"status": status, "entries": [asdict(entry) for entry in entries]}
        return report  # type: ignore[no-any-return]

    def covering(self, item: pytest.Item) -> list[Expectation]:
        """The entries that cover a test on this platform and these versions."""
        case = case_of(item)
        found = [entry for entry in self.live if covers(entry, item)]
        return [entry for entry in found if case is None or entry.runs_on(self.platform(case.target))]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        """Report each entry that covers no test as an error, in the process that has all reports."""
        done = yield
        for entry in [] if self.conformance.is_worker else self.conformance.unmatched:
            place = f"{entry['file']}::entry {entry['number']}"
            text = (
                f"entry {entry['number']} of {entry['file']} matches no test: {entry['test']!r} when {entry['when']}. "
                f"Delete it, or correct its test; where it is meant for another target, say so in `when`"
            )
            report = pytest.TestReport(place, (entry["file"], None, place), {}, "failed", text, "setup")
            self.config.hook.pytest_runtest_logreport(report=report)
        return done

    def pytest_sessionfinish(self) -> None:
        """A worker sends the entries without a test: under xdist only workers collect."""
        if self.conformance.is_worker:
            self.config.workeroutput["meshproof_unmatched"] = self.conformance.unmatched  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over a worker's findings; every worker collects the same tests."""
        self.conformance.unmatched = getattr(node, "workeroutput", {}).get("meshproof_unmatched", [])


def is_whole(config: pytest.Config, items: list[pytest.Item]) -> bool:
    """Whether every test of the suites was collected, before any is deselected."""
    collected = {item.path for item in items}
    suites = list((config.rootpath / SUITES).rglob("test_*.py"))
    narrowed = config.getoption("lf", False) or any("::" in argument for argument in config.args)
    return bool(suites) and not narrowed and collected.issuperset(suites)


def is_judged(entry: Expectation, targets: tuple[str, ...]) -> bool:
    """Whether the run has the entry's target."""
    platform = entry.when.get("platform", "cpu")
    asked = entry.when.get("target", targets[0] if platform == "cpu" else platform)
    named = any(f"{target}:".startswith(f"{asked}:") for target in targets)
    return named or (platform != "cpu" and "native" in targets)


def covers(entry: Expectation, item: pytest.Item) -> bool:
    """Whether an entry covers a test, on any platform."""
    case = case_of(item)
    return entry.covers(item.nodeid, case.target if case else None, case.devices if case else None)


def stale(entry: Expectation, test: str) -> str:
    """What to do about an expectation that no longer holds."""
    return (
        f"the expectation no longer holds: {test} passes, but {entry} expects it to fail ({entry.reason}; {entry.url})."
        f" Delete it or narrow its `test` or `when`; `meshproof expectations update REPORT.json` does so"
    )
