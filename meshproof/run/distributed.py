"""``pytest suites/ --distributed``: several pytest processes judge the same tests, each what its process sees.

All observe the chosen cases in lockstep before the first test: `meshproof.observing.lockstep` in a child of each. Then
each judges its own observations, and process 0 reports: its own results, and what failed in the others.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from meshproof.children import GRACE, TRACEBACK, abort, end, ended, is_over, stack, start
from meshproof.files import replace_pickle
from meshproof.judging.records import case_of
from meshproof.launching.endings import exit_text
from meshproof.launching.group import LAST_WORDS, free_port
from meshproof.launching.meeting import Meeting, PeerError
from meshproof.launching.peers import Peers
from meshproof.observing.agreement import HEARTBEAT
from meshproof.observing.process import Settings
from meshproof.observing.seen import Failed
from meshproof.run.conformance import NAME, Conformance

ALONE = "was ended, for another had failed"
"""What is said of a process that waits for one that has gone."""

VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy")
"""Distributions of which all processes must have the same version."""


class Distributed:
    """A pytest plugin beside that of the run."""

    def __init__(self, conformance: Conformance, peers: Peers) -> None:
        self.conformance, self.peers = conformance, peers
        self.meeting = Meeting(peers)
        self.met = False
        self.failures: dict[str, str] = {}
        self.forwarded: dict[str, list[str]] = {}
        self.lost = ""

    def pytest_report_header(self) -> str:
        """Which process of which this is."""
        peers = self.peers
        return f"{NAME}: --distributed, process {peers.number} of {peers.count}, process 0 at {peers.address}"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """What judges no case, but the stack, is judged by process 0 alone."""
        if self.peers.number:
            config.hook.pytest_deselected(items=[item for item in items if case_of(item) is None])
            items[:] = [item for item in items if case_of(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Meet the others, and observe every chosen case with them."""
        if not session.config.option.collectonly:
            try:
                self.observe_all([(item.nodeid, case.id) for item in session.items if (case := case_of(item))])
            except PeerError as error:
                self.lost = str(error)
                pytest.exit(f"--distributed: {error}", pytest.ExitCode.INTERRUPTED)
        return (yield)

    def observe_all(self, tests: Sequence[tuple[str, str]]) -> None:
        """Raises `PeerError` where another process is missing, or chose other tests, or has another stack."""
        self.meeting.__enter__()
        self.met = True
        settings = self.conformance.settings
        own = {
            "versions": {name: version(name) for name in VERSIONS},
            "--impl": settings.implementation,
            "--devices": settings.devices,
            "tests": [test for test, _ in tests],
        }
        for number, other in enumerate(everyone := self.meeting.exchange(own, settings.case_timeout, "its tests")):
            check_same(everyone[0], other, number)
        named = dict(tests)
        left = list(dict.fromkeys(named[test] for test in everyone[0]["tests"]))  # in the order of process 0
        self.say(f"over {self.peers.count} processes, before the first test: {', '.join(left)}")
        while left:
            port = self.meeting.exchange(free_port(), settings.case_timeout, "a port")[0]
            own = self.observe(settings, port, left)
            limit = settings.case_timeout + HEARTBEAT + 4 * GRACE
            seen = self.meeting.exchange(own, limit, "the end of its observations")
            done = min(each["answered"] for each in seen)
            if done < len(left):
                why = [f"process {number} {each['fault']}" for number, each in enumerate(seen) if each["fault"]]
                why.sort(key=lambda told: "SIGABRT" in told or ALONE in told)  # those who waited for another
                words = f"over {self.peers.count} processes: " + "\n".join(why or ["a process gave no answer"])
                replace_pickle(kept(settings, left[done]), Failed(words))
                self.say(f"{left[done]}: {words.splitlines()[0]}")
            left = left[done + 1 :]

    def say(self, text: str) -> None:
        """A line of process 0, while all observe."""
        reporter: Any = self.conformance.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(text)

    def observe(self, settings: Settings, port: int, names: Sequence[str]) -> dict[str, Any]:
        """How many of the cases this process has observed when its child ends, and the fault of that."""
        peers, [target] = self.peers, self.conformance.targets
        for name in names:
            kept(settings, name).unlink(missing_ok=True)
        address = f"{peers.address.rpartition(':')[0]}:{port}"
        command = [sys.executable, *TRACEBACK, "-m", "meshproof.observing.lockstep", settings.implementation, target]
        command += [settings.directory, address, str(peers.count), str(peers.number)]
        command += ["1" if self.conformance.selection.checkpoints else "0", *names]
        variables = settings.environment(target) | {"JAX_NUM_CPU_DEVICES": str(settings.devices // peers.count)}
        with tempfile.TemporaryFile("w+") as log:
            child = start(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=variables)
            try:
                fault = self.awaited(child, settings, names)
            finally:
                end(child)
            log.seek(0)
            said = log.read()
        answered = next((at for at, name in enumerate(names) if not kept(settings, name).exists()), len(names))
        if fault:
            words = stack(said) or said.splitlines()[-LAST_WORDS:]
            fault = "\n".join([f"{fault}; its last words:", *(words or ["none"])])
            if self.peers.number == 0:
                self.meeting.hurry()
        return {"answered": answered, "fault": fault}

    def awaited(self, child: subprocess.Popen[bytes], settings: Settings, names: Sequence[str]) -> str:
        """Wait for a child that observes these cases; how it failed, or nothing where it did not.

        It is ended where it answers nothing more, and soon where the child of another process has failed.
        """
        left, until, alone = list(names), time.monotonic() + settings.case_timeout, False
        while not is_over(child):
            if left and kept(settings, left[0]).exists():
                left.pop(0)
                until = time.monotonic() + settings.case_timeout
            if not alone and self.meeting.hears_of("fault"):
                alone, until = True, min(until, time.monotonic() + GRACE)
            if time.monotonic() > until:
                stopped = abort(child)
                ended(child, GRACE)
                place = left[0] if left else "its end"
                if alone:
                    return f"was stopped by {stopped}, at {place}" if stopped else ALONE
                stood = f"was stopped by {stopped}" if stopped else "gave no answer"
                return f"{stood} within {settings.case_timeout:g} s, at {place}"
            time.sleep(0.05)
        return exit_text(child)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What failed here."""
        if report.failed:
            self.failures[report.nodeid] = report.longreprtext

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Process 0 takes over what failed in the others; these have said it, and end well."""
        if self.met and not self.lost:
            try:
                self.take_over(
                    self.meeting.exchange(self.failures, 2 * self.conformance.settings.case_timeout, "failures")
                )
            except PeerError as error:
                self.lost = str(error)
        self.meeting.__exit__()
        yield
        if self.lost:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        elif self.met and self.peers.number:
            session.exitstatus = pytest.ExitCode.OK
        elif self.forwarded:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def take_over(self, everyone: Sequence[dict[str, str]]) -> None:
        """In process 0: what failed elsewhere has failed."""
        for number, failures in enumerate(everyone if self.peers.number == 0 else ()):
            for test, text in failures.items() if number else ():
                same = text == self.failures.get(test)
                self.forwarded.setdefault(test, []).append(f"process {number}: {'the same' if same else text}")
        for test, texts in self.forwarded.items():
            record = self.conformance.records[test]
            record.message = "\n".join([*([record.message] if record.status == "failed" else []), *texts])
            record.status = "failed"

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What failed in other processes, and whether one was lost."""
        for test, texts in self.forwarded.items():
            terminalreporter.write_sep("_", test)
            for text in texts:
                terminalreporter.write_line(text)
        if self.lost:
            terminalreporter.write_line(f"--distributed: {self.lost}", red=True, bold=True)


def kept(settings: Settings, name: str) -> Path:
    """The file of a case's observation."""
    return Path(settings.directory) / f"{quote(name, safe='')}.pickle"


def check_same(first: dict[str, Any], other: dict[str, Any], number: int) -> None:
    """Raises `PeerError` where a process was started otherwise than process 0."""
    for name, value in first["versions"].items():
        if other["versions"][name] != value:
            raise PeerError(
                f"process {number} has {name} {other['versions'][name]}, process 0 has {value}: expected one stack"
            )
    for option in ("--impl", "--devices"):
        if other[option] != first[option]:
            raise PeerError(f"process {number} has {option} {other[option]}, process 0 has {first[option]}")
    if differing := sorted(set(first["tests"]) ^ set(other["tests"])):
        holder = 0 if differing[0] in first["tests"] else number
        raise PeerError(
            f"process {number} chose other tests than process 0: {len(differing)} are in one of them alone, first "
            f"{differing[0]} in process {holder}; expected the same arguments everywhere"
        )
