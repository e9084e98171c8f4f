"""One of two pytest processes that take turns: each runs a round of a benchmark while the other is idle.

Loaded by `meshproof ab` with ``-p``. It writes events to the socket that it inherits, one line of JSON each.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--turns``, the socket's file descriptor."""
    parser.addoption("--turns", type=int, metavar="FD", help="for `meshproof ab`: the socket to the other side")


def pytest_configure(config: pytest.Config) -> None:
    """Connect to the parent."""
    config.pluginmanager.register(Turns(socket.socket(fileno=config.getoption("turns"))), "meshproof-turns")


class Turns:
    """This side of the comparison."""

    def __init__(self, link: socket.socket) -> None:
        self.lines = link.makefile("rw", encoding="utf-8")
        self.rounds = 0

    def send(self, event: str, **facts: Any) -> None:
        """Send facts to the parent."""
        self.lines.write(json.dumps({"event": event, **facts}, default=str) + "\n")
        self.lines.flush()

    def receive(self) -> Any:
        """The parent's next message; if it is gone, the run ends."""
        line = self.lines.readline()
        if not line:
            pytest.exit("the other side is gone", returncode=pytest.ExitCode.INTERRUPTED)
        return json.loads(line)

    def wait(self) -> None:
        """Wait for a turn; if the other side has stopped, the test ends here."""
        if not self.receive()["go"]:
            pytest.skip("the other side cannot time it")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the benchmarks that both sides have, in the parent's order."""
        found = {item.nodeid: item for item in items if "benchmark" in getattr(item, "fixturenames", ())}
        self.send("collected", tests=list(found))
        answer = self.receive()
        self.rounds, items[:] = answer["rounds"], [found[name] for name in answer["tests"]]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Make every round of every benchmark wait for its turn."""
        fixture: Any = yield
        if fixturedef.argname == "benchmark":
            fixture.pedantic = self.in_turns(fixture, request.node.nodeid)
        return fixture  # type: ignore[no-any-return]

    def in_turns(self, fixture: Any, test: str) -> Callable[..., Any]:
        """``benchmark.pedantic`` where setup, round and teardown are one turn."""
        pedantic = fixture.pedantic

        @wraps(pedantic)
        def run(target: Any, *arguments: Any, setup: Any = None, teardown: Any = None, **options: Any) -> Any:
            def set_up() -> Any:
                self.wait()
                return setup() if setup else None

            def tear_down(*arguments: Any, **keywords: Any) -> None:
                if teardown:
                    teardown(*arguments, **keywords)
                self.send("round", seconds=fixture.stats.stats.data[-1])

            self.send("ready", test=test)
            options |= {"rounds": self.rounds, "warmup_rounds": 0}
            result = pedantic(target, *arguments, setup=set_up, teardown=tear_down, **options)
            self.send("timed")
            self.wait()
            return result

        return run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Send the outcome of each test when it is over."""
        item.outcome, item.reason = "passed", ""
        done = yield
        try:
            json.dumps(item.extra_info, default=str)
        except (TypeError, ValueError) as error:
            item.outcome, item.reason, item.extra_info = "failed", f"its extra_info is no JSON: {error}", {}
        self.send("finished", test=item.nodeid, outcome=item.outcome, reason=item.reason, info=item.extra_info)
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any) -> Iterator[None]:
        """Keep a test's outcome, the reason of a failure, and its ``extra_info``."""
        report: Any = yield
        fixture = getattr(item, "funcargs", {}).get("benchmark")
        item.extra_info = getattr(fixture, "extra_info", None) or getattr(item, "extra_info", {})
        if not report.passed and item.outcome == "passed":
            long = report.longrepr
            item.outcome = report.outcome
            item.reason = long[-1] if isinstance(long, tuple) else getattr(long, "reprcrash", None) or str(long)
        return report  # type: ignore[no-any-return]
