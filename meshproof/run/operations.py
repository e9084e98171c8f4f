"""What a table of operations lists, in a run: which there are, and what an observing process saw of each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from meshproof.cases import REFERENCE
from meshproof.files import unfillable
from meshproof.judging.judge import Judge
from meshproof.judging.records import LISTED, subject_of
from meshproof.observing.seen import Failed, Seen
from meshproof.operations import Operation
from meshproof.operations.growing import GrowingProgram
from meshproof.operations.growing.keys import Keys
from meshproof.operations.growing.observing import Growth, ProgramSeen
from meshproof.operations.loading import OWN, Table, TableError, load_table
from meshproof.operations.observing import OperationSeen, PointsSeen
from meshproof.operations.recording import fates, operation_entry, program_entry
from meshproof.operations.reproducers import write_reproducer
from meshproof.operations.stacked.observing import Moment, StackedCase
from meshproof.operations.transforms import TransformFamily
from meshproof.operations.transforms.observing import FamilySeen
from meshproof.operations.transforms.reproducers import write_reproducers
from meshproof.operations.transforms.settings import chosen_settings
from meshproof.run.conformance import Conformance

NAME = "meshproof-operations"

DEVICES = 8
"""The virtual devices of the meshes that a table is run on."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of operations."""
    group = parser.getgroup("meshproof")
    text = f"table of operations: my_ops.py, my.module or none (default {OWN}, with --impl none)"
    group.addoption("--operations", metavar="TABLE", help=text)
    group.addoption(
        "--reproducers",
        metavar="DIR",
        help="write a script of nothing but JAX for each operation or composition that fails",
    )
    group.addoption(
        "--exhaustive", action="store_true", help="run operations under every layout, not some of each kind"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse, before the first test, a table that cannot be used, and a folder for scripts that is none."""
    conformance: Any = config.pluginmanager.get_plugin("meshproof")
    folder = config.getoption("reproducers")
    if folder:
        held = next(at for at in (Path(folder).absolute(), *Path(folder).absolute().parents) if at.exists())
        if unfillable(held):
            raise pytest.UsageError(f"--reproducers {folder}: expected a folder in which files can be written")
    try:
        config.pluginmanager.register(Operations(conformance, chosen_table(config)), NAME)
    except TableError as error:
        raise pytest.UsageError(str(error)) from error


def chosen_table(config: pytest.Config) -> str:
    """The table of a run; empty for none. It is run on virtual CPU devices alone. Raises `TableError` where a table is
    named, and there are too few of these."""
    named, devices = config.getoption("operations"), config.getoption("devices")
    if named and named != "none" and devices < DEVICES:
        raise TableError(f"--operations {named} --devices {devices}: operations are run on {DEVICES} virtual devices")
    if named:
        return "" if named == "none" else str(named)
    targets = config.getoption("target") or ("cpu",)
    own = config.getoption("impl") == REFERENCE and "cpu" in targets and devices >= DEVICES
    return OWN if own else ""


class Operations:
    """A pytest plugin beside that of the run."""

    def __init__(self, conformance: Conformance, source: str) -> None:
        self.conformance, self.source = conformance, source
        self.table: Table = load_table(source)
        self.exhaustive = bool(conformance.config.getoption("exhaustive"))
        self.entries: dict[str, Any] = {}
        self.programs: dict[str, Any] = {}
        self.written: dict[str, None] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each operation, or for each way of stacking layers."""
        for fixture, member in LISTED.items() if metafunc.definition.get_closest_marker("clause") else ():
            if fixture in metafunc.fixturenames:
                listed = getattr(self.table, member)
                metafunc.parametrize(fixture, list(listed.values()), ids=list(listed), scope="session")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Drop the tests of a table that lists none of theirs."""
        clauses = [item for item in items if item.get_closest_marker("clause")]
        idle = [
            item for item in clauses if LISTED.keys() & set(getattr(item, "fixturenames", ())) and not subject_of(item)
        ]
        if idle:
            config.hook.pytest_deselected(items=idle)
            items[:] = [item for item in items if item not in idle]

    def observed(self, ask: str, name: str) -> Any:
        """What the observing process saw, once in a run; where it died, with the layout that it was at."""
        observer = self.conformance.observers["cpu"]
        note = observer.kept(f"{ask} at:{name}")
        request = {"ask": ask, "table": self.source, "name": name, "exhaustive": self.exhaustive, "note": str(note)}
        seen = observer.once(f"{ask}:{name}", request)
        if isinstance(seen, Failed) and note.exists():
            return Failed(f"{name}, {note.read_text(encoding='utf-8')}: {seen.reason}")
        return seen

    def transforms(self, family: TransformFamily) -> Seen[FamilySeen]:
        """A family of compositions, which is recorded."""
        seen: Seen[FamilySeen] = self.observed("transforms", family.id)
        self.entries[family.id] = operation_entry(family.id, seen)
        folder = self.conformance.config.getoption("reproducers")
        if folder and isinstance(seen, FamilySeen) and seen.expected:
            chosen = chosen_settings([*self.table.transforms.values()], self.exhaustive)[family.id]
            named = {setting.name: setting for setting in chosen}
            self.written |= dict.fromkeys(write_reproducers(named, seen, Path(folder)))
        return seen

    def growth(self, program: GrowingProgram) -> Seen[ProgramSeen]:
        """How a program grows, which is recorded."""
        seen: Seen[ProgramSeen] = self.observed("growth", program.id)
        self.programs[program.id] = program_entry(program.id, seen)
        return seen

    def cache_keys(self) -> Seen[tuple[Keys, Keys]]:
        """The keys of all programs of the table, of two fresh processes."""
        seen: Seen[tuple[Keys, Keys]] = self.observed("keys", "all")
        return seen

    def operation(self, operation: Operation) -> Seen[OperationSeen]:
        """An operation under its layouts, which is recorded."""
        seen: Seen[OperationSeen] = self.observed("operation", operation.id)
        self.entries[operation.id] = operation_entry(operation.id, seen)
        folder = self.conformance.config.getoption("reproducers")
        if folder and isinstance(seen, OperationSeen):
            self.written |= dict.fromkeys(write_reproducer(operation, seen, Path(folder)))
        return seen

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """A worker sends the entries of the operations that it judged."""
        if self.conformance.is_worker:
            told = {"operations": self.entries, "programs": self.programs, "written": self.written}
            self.conformance.config.workeroutput["meshproof_operations"] = json.dumps(told)  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the entries of a worker."""
        told = json.loads(getattr(node, "workeroutput", {}).get("meshproof_operations", "{}"))
        self.entries |= told.get("operations", {})
        self.programs |= told.get("programs", {})
        self.written |= told.get("written", {})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how much was run, and which scripts were written."""
        points = [fate for entry in self.entries.values() for each in entry["layouts"].values() for fate in fates(each)]
        if points:
            counted = Counter(fate.partition(":")[0] for fate in points)
            listed = ", ".join(f"{count:,} {fate}" for fate, count in counted.most_common())
            terminalreporter.write_line(f"operations: {len(self.entries)}, layouts and directions: {listed}")
        if self.written:
            terminalreporter.write_line(f"reproducers: {', '.join(sorted(self.written))}")


@pytest.fixture
def seen_operation(operation: Operation, pytestconfig: pytest.Config, judge: Judge) -> OperationSeen:
    """An operation under its layouts."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(NAME)
    return judge.see(plugin.operation(operation))


@pytest.fixture
def seen_family(transformed: TransformFamily, pytestconfig: pytest.Config, judge: Judge) -> PointsSeen:
    """A family of compositions of transforms."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(NAME)
    return judge.see(plugin.transforms(transformed))


@pytest.fixture
def growths(program: GrowingProgram, pytestconfig: pytest.Config, judge: Judge) -> tuple[Growth, ...]:
    """How a program grows."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(NAME)
    return judge.see(plugin.growth(program)).growths


@pytest.fixture
def cache_keys(pytestconfig: pytest.Config, judge: Judge) -> tuple[Keys, Keys]:
    """The keys under which two processes keep the programs of the table."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(NAME)
    return judge.see(plugin.cache_keys())


@pytest.fixture
def moments(stacked: StackedCase, pytestconfig: pytest.Config, judge: Judge) -> tuple[Moment, ...]:
    """The moments in the life of stacked layers."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(NAME)
    seen: Seen[tuple[Moment, ...]] = plugin.observed("stacked layers", stacked.id)
    return judge.see(seen)
