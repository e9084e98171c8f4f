"""`pytest suites/ --conformance-compare OLD.json`: at its end, a run is compared with an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshproof.commands.compare import CLASSES, read_classes
from meshproof.comparison.comparing import compare, same_implementation
from meshproof.comparison.output import write_table
from meshproof.files import check_apart
from meshproof.report.document import ReportError, read_report

NAME = "meshproof-comparison"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--conformance-compare`` and ``--fail-on``."""
    group = parser.getgroup("meshproof")
    group.addoption("--conformance-compare", metavar="OLD.json", help="say what changed since this report")
    group.addoption("--fail-on", metavar="CLASS,...", help=f"{CLASSES} (default regressed)")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse, before the first test, what could not be compared after the last."""
    path, classes = config.getoption("conformance_compare"), config.getoption("fail_on")
    if path is None and classes is not None:
        raise pytest.UsageError(
            f"--fail-on {classes}: there is nothing to compare; give --conformance-compare OLD.json"
        )
    if path is None or hasattr(config, "workerinput"):
        return
    try:
        old = read_report(Path(path))
        if written := config.getoption("conformance_report"):
            check_apart({"--conformance-report": Path(written)}, [Path(path)])
        same_implementation(old["implementation"], config.getoption("impl"))
        config.pluginmanager.register(Compared(old, read_classes(classes or "regressed")), NAME)
    except (ReportError, ValueError) as error:
        raise pytest.UsageError(f"--conformance-compare {path}: {error}") from error


class Compared:
    """The comparison at the end of a run; a run that passed takes the exit code of `meshproof compare`."""

    def __init__(self, old: dict[str, Any], classes: list[str]) -> None:
        self.old, self.classes = old, classes

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
        """Compare; runs last, after the report is made."""
        report = config.pluginmanager.get_plugin("meshproof").record  # type: ignore[union-attr]
        terminalreporter.section("comparison")
        if report is None or report["environment"] is None:
            reason = "no clause was judged" if report is None else "the stack could not be described"
            terminalreporter.write_line(f"cannot tell: {reason}")
            code = 2
        else:
            comparison = compare(self.old, report)
            write_table(comparison, terminalreporter.write_line)
            code = comparison.exit_code(self.classes)
        if exitstatus == pytest.ExitCode.OK:
            config.pluginmanager.get_plugin("session").exitstatus = code  # type: ignore[union-attr]
