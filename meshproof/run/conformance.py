"""One pytest process of a run: the cases, the observing processes, and the records of its tests.

Collection reads names and contracts only. Under xdist one worker has a strategy's tests; observations are shared files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import pytest
from threadpoolctl import threadpool_limits

from meshproof.cases import Case, ImplementationError, load_cases
from meshproof.children import read_seconds
from meshproof.chosen import covering
from meshproof.judging.records import Record, case_of, clause_of, record_of
from meshproof.judging.truths import Truths
from meshproof.observing.observation import Observation
from meshproof.observing.process import Observer, Settings
from meshproof.run.compile_cache import open_cache, trim_cache, usual_cache
from meshproof.run.progress import SignOfLife, forecast, standard_output
from meshproof.run.recording import build_report, case_entry
from meshproof.run.selection import Selection, read_selection
from meshproof.run.summary import keep_report, never_exercised, nothing_exercised, write_summary
from meshproof.run.xdist_scheduler import ByStrategy
from meshproof.targets.flags import flags_set

NAME = "meshproof"


class Conformance:
    """One pytest process of a run: the cases, the observing processes, and the records of its tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.targets = tuple(dict.fromkeys(config.getoption("target") or ("cpu",)))
        worker = getattr(config, "workerinput", None)
        self.directory = worker["meshproof_directory"] if worker else tempfile.mkdtemp(prefix="meshproof-")
        self.records: dict[str, Record] = {}
        self.clauses: dict[str, str] = {}
        self.unmatched: list[dict[str, Any]] = []
        self.entries: dict[str, Any] = {}
        self.compiled = Path(folder) if (folder := (worker or {}).get("meshproof_compiled")) else None
        self.warm = self.begun = False
        self.remark = ""
        self.sign: SignOfLife | None = None
        self.record: dict[str, Any] | None = None
        self.selection = Selection()
        self.observation = cache(lambda case: self.selection.observe(case, self.observers[case.target]))
        self.flags = flags_set(os.environ)

    @cached_property
    def settings(self) -> Settings:
        """How observing processes are started."""
        return Settings(
            implementation=self.config.getoption("impl"),
            devices=self.config.getoption("devices"),
            directory=self.directory,
            compile_cache=str(self.compiled) if self.compiled else None,
            case_timeout=read_seconds(self.config.getoption("case_timeout")),
        )

    @cached_property
    def cases(self) -> list[Case]:
        """Every case of the implementation."""
        return load_cases(self.config.getoption("impl"), self.targets)

    @cached_property
    def judged(self) -> list[Case]:
        """Those that are judged; others may be what they are compared with."""
        return covering(self.cases, self.config.option.devices) if self.config.option.quick else self.cases

    @cached_property
    def observers(self) -> dict[str, Observer]:
        """An observing process for each target."""
        return {target: Observer(self.settings, target) for target in self.targets}

    @cached_property
    def unflagged(self) -> dict[str, Observer]:
        """For each target a process whose environment sets no compiler flag."""
        return {target: Observer(replace(self.settings, user_flags=False), target) for target in self.targets}

    @cached_property
    def truths(self) -> Truths:
        """What the cases' numbers must be."""
        return Truths(self.observers)

    @property
    def fresh(self) -> Observer:
        """A process that has observed nothing."""
        return Observer(self.settings, "cpu")

    @property
    def is_worker(self) -> bool:
        """Whether another process writes the report."""
        return hasattr(self.config, "workerinput")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Find the compiled programs of earlier runs; a run that can keep none says so and goes on."""
        options = self.config.option
        if self.is_worker or options.no_compile_cache or options.collectonly:
            return
        root = Path(options.compile_cache or usual_cache()).absolute()
        try:
            self.compiled = open_cache(root, os.environ.get("XLA_FLAGS", ""))
        except OSError as error:
            self.remark = (
                f"WARNING: compiled programs are not kept: {root}: {error.strerror}; "
                f"--compile-cache DIR names another folder, --no-compile-cache none"
            )
        else:
            self.warm = any(self.compiled.iterdir())

    def pytest_report_header(self) -> list[str]:
        """The settings of the run, so that a typo is seen."""
        settings = self.settings
        return [
            f"{NAME}: --impl {settings.implementation} --devices {settings.devices} "
            f"--target {','.join(self.targets)} --compile-cache {settings.compile_cache or 'none'} "
            f"--case-timeout {settings.case_timeout:g}{' --quick' * self.config.option.quick}",
            *filter(None, [self.remark]),
        ]

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> str:
        """What will happen; under xdist that is said by the process that hands out the tests."""
        return "" if self.is_worker else self.begin([item.nodeid for item in items], 1)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """What will happen, once: every worker collects the same."""
        if not self.begun:
            reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(self.begin(ids, self.config.getoption("numprocesses") or 1))

    def begin(self, ids: list[str], workers: int) -> str:
        """Show a sign of life from now on; and what will happen, in a line."""
        tests = [nodeid for nodeid in ids if nodeid.startswith("suites/")]
        named = {test.partition("[")[2].removesuffix("]") for test in tests}
        cases = [case.id for case in self.cases if case.id in named]
        writer = self.config.get_terminal_writer()
        if cases and not (self.begun or self.config.option.collectonly):
            self.sign = SignOfLife(Path(self.directory), cases, standard_output(), terminal=writer.hasmarkup)
        self.begun = True
        asked = len(cases), sum(name.endswith("@operations") for name in named), len(tests)
        return forecast(*asked, workers, self.warm, accelerated="native" in self.targets) if cases else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """One clear error for an implementation that cannot be used, instead of one per test."""
        try:
            self.cases  # noqa: B018 - loads them
        except ImplementationError as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each case that the clause applies to."""
        if "case" not in metafunc.fixturenames:
            return
        marks = metafunc.definition.iter_markers("clause")
        asked = {name: rule for mark in marks for name, rule in mark.kwargs.items()}
        applies, among = asked.get("applies", lambda case: True), asked.get("among", lambda case, cases: True)
        chosen = [case for case in self.judged if applies(case) and among(case, self.cases)]
        metafunc.parametrize("case", chosen, ids=[case.id for case in chosen], scope="session")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember every clause, also those whose tests -k or -m will deselect; drop tests that apply to no case."""
        judging = [item for item in items if item.get_closest_marker("clause")]
        for clause, statement in map(clause_of, judging):
            self.clauses.setdefault(clause, statement)
        if idle := [item for item in judging if "case" in item.fixturenames and case_of(item) is None]:  # type: ignore[attr-defined]
            self.config.hook.pytest_deselected(items=idle)
            items[:] = [item for item in items if item not in idle]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Judge with one BLAS thread: idle ones spin, and take cores from the observing processes."""
        self.selection = read_selection(session.items)
        with threadpool_limits(1):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Send each test's record along with its report: xdist carries it to the process that writes them down."""
        report: Any = yield
        if item.get_closest_marker("clause"):
            record = record_of(item)
            record.conclude(report)
            report.user_properties = [*report.user_properties, (NAME, asdict(record))]
        return report  # type: ignore[no-any-return]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the records; a later phase of a test replaces the record of an earlier one."""
        if self.sign:
            self.sign.judged()
        for name, value in report.user_properties:
            if name == NAME:
                record = self.records[report.nodeid] = Record(**cast("dict[str, Any]", value))
                self.clauses.setdefault(record.clause, record.statement)  # a worker that is interrupted sends none

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Every worker shares this process's directory of observations."""
        node.workerinput["meshproof_directory"] = self.directory
        node.workerinput["meshproof_compiled"] = str(self.compiled or "")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the clauses and the report's entries of a worker: under xdist only workers collect and judge."""
        output = getattr(node, "workeroutput", {})
        self.clauses |= output.get("meshproof_clauses", {})
        self.entries |= json.loads(output.get("meshproof_cases", "{}"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Tests of one strategy stay together, unless the user chose a distribution."""
        return ByStrategy(config, log) if config.getvalue("dist") == "load" else None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker sends the clauses that it collected and the report's entries of the cases that it judged."""
        self.stopped = bool(session.shouldstop or session.shouldfail)
        if self.is_worker:
            self.describe_cases()
            output = {"meshproof_clauses": self.clauses, "meshproof_cases": json.dumps(self.entries)}
            self.config.workeroutput.update(output)  # type: ignore[attr-defined]

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """The matrix, the counts and the report's path. Not in xdist's workers, which have only their own tests."""
        if self.is_worker:
            return
        path = self.config.getoption("conformance_report")
        if self.records:
            report = self.record = self.report(exitstatus)
            session: Any = self.config.pluginmanager.get_plugin("session")
            records = self.records.values()
            own = {case.strategy.name for case in self.cases if case.is_own_judge and case.id in self.entries}
            write_summary(report, records, terminalreporter, own)
            if left := len(self.cases) - len(self.judged):
                terminalreporter.write_line(f"--quick left out {left} of {len(self.cases)} cases")
            if exitstatus == pytest.ExitCode.OK and nothing_exercised(records):
                session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
            if idle := never_exercised(records, (self.config.getoption("require") or "").split(",")):
                terminalreporter.write_line("\n".join(idle), red=True, bold=True)
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            if path:
                keep_report(report, Path(path), terminalreporter)
        elif path:
            terminalreporter.write_line("no report: no clause was judged")

    def report(self, exitstatus: int) -> dict[str, Any]:
        """The record of the run, with every case that any worker judged."""
        self.describe_cases()
        asked: Any = self.config.pluginmanager.get_plugin("meshproof-check")
        environments = {name: observer.environment() for name, observer in self.observers.items()}
        run = {
            "finished": exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not self.stopped,
            "warm": self.warm,
            "command": "meshproof check" if asked else "python -m pytest",
            "arguments": asked.words if asked else [*map(str, self.config.invocation_params.args)],
        }
        entries = [self.entries[case.id] for case in self.cases if case.id in self.entries]
        implementation, records = self.settings.implementation, list(self.records.values())
        return build_report(
            implementation, environments, self.clauses, records, entries, run, self.unmatched, self.listed()
        )

    def listed(self) -> dict[str, list[Any]]:
        """The report's entries of the operations and programs that were judged, by the member of the report."""
        plugin: Any = self.config.pluginmanager.get_plugin("meshproof-operations")
        found = {"operations": plugin.entries, "programs": plugin.programs} if plugin else {}
        return {member: sorted(own.values(), key=lambda entry: entry["id"]) for member, own in found.items()}

    def describe_cases(self) -> None:
        """Make the report's entry of every judged case, unless a worker sent it."""
        missing = {record.case for record in self.records.values()} - self.entries.keys()
        with threadpool_limits(1):  # as in the tests: more threads sum in another order
            for case in (each for each in self.cases if each.id in missing):
                seen = self.observation(case)
                truth = self.truths.of(case, seen) if isinstance(seen, Observation) else None
                self.entries[case.id] = case_entry(case, seen, truth)

    def pytest_unconfigure(self) -> None:
        """End the observing processes and delete the observations."""
        if self.sign:
            self.sign.stop()
        for observer in (each for made in ("observers", "unflagged") for each in self.__dict__.get(made, {}).values()):
            observer.close()
        if not self.is_worker:
            shutil.rmtree(self.directory, ignore_errors=True)
            if self.compiled:
                trim_cache(self.compiled.parent)
