"""The operations and stacked layers of a run: which there are, and what an observing process saw of each."""

from __future__ import annotations

from typing import Any

import pytest

from meshproof.cases import REFERENCE
from meshproof.judging.judge import Judge
from meshproof.judging.records import LISTED, subject_of
from meshproof.observing.seen import Seen
from meshproof.operations.loading import OWN, Table, TableError, load_table
from meshproof.operations.stacked.observing import Moment, StackedCase
from meshproof.run.conformance import Conformance

NAME = "meshproof-operations"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of operations."""
    group = parser.getgroup("meshproof")
    text = f"table of operations: my_ops.py, my.module or none (default {OWN}, with --impl none)"
    group.addoption("--operations", metavar="TABLE", help=text)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse, before the first test, a table that cannot be used."""
    conformance: Any = config.pluginmanager.get_plugin("meshproof")
    try:
        config.pluginmanager.register(Operations(conformance, chosen_table(config)), NAME)
    except TableError as error:
        raise pytest.UsageError(str(error)) from error


def chosen_table(config: pytest.Config) -> str:
    """The table of a run; empty for none. It is run on virtual CPU devices alone."""
    named = config.getoption("operations")
    if named:
        return "" if named == "none" else str(named)
    targets = config.getoption("target") or ("cpu",)
    return OWN if config.getoption("impl") == REFERENCE and "cpu" in targets else ""


class Operations:
    """A pytest plugin beside that of the run."""

    def __init__(self, conformance: Conformance, source: str) -> None:
        self.conformance, self.source = conformance, source
        self.table: Table = load_table(source)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each operation, or for each way of stacking layers."""
        for fixture, member in LISTED.items():
            if fixture in metafunc.fixturenames:
                listed = getattr(self.table, member)
                metafunc.parametrize(fixture, list(listed.values()), ids=list(listed), scope="session")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Drop the tests of a table that lists none of theirs."""
        idle = [
            item for item in items if LISTED.keys() & set(getattr(item, "fixturenames", ())) and not subject_of(item)
        ]
        if idle:
            config.hook.pytest_deselected(items=idle)
            items[:] = [item for item in items if item not in idle]

    def observed(self, ask: str, name: str) -> Any:
        """What the observing process saw, once in a run."""
        request = {"ask": ask, "table": self.source, "name": name}
        return self.conformance.observers["cpu"].once(f"{ask}:{name}", request)


@pytest.fixture
def moments(stacked: StackedCase, pytestconfig: pytest.Config, judge: Judge) -> tuple[Moment, ...]:
    """The moments in the life of stacked layers."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(NAME)
    seen: Seen[tuple[Moment, ...]] = plugin.observed("stacked layers", stacked.id)
    return judge.see(seen)
