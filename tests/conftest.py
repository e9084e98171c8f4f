"""What holds for all tests: hypothesis times no example, and what a test starts is no worker of xdist and needs no
hypothesis, whose plugin takes a second to say nothing at the end of each run.

And what several of them start from: files of a run that was timed, and of a report.
"""

import json
import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from meshproof.observing.process import QUICK_CODE
from tests.reports import new_report
from tests.timings import save

settings.register_profile("untimed", deadline=None)  # on a busy machine any example may be slow
settings.load_profile("untimed")

ANY_STACK = {
    "faults": "harness_mutants lost_processes",
    "system": "ab adopt bisect browser case_timeout check ci_recipes conformance_compare distributed exchange "
    "expected_failures html_in_browser interrupted plan_command plots_command plugin "
    "real_runs run_faults timing_plugin upgrade",
    "unit": "baselines children compare compare_speed dependencies documents environments "
    "expectations_update files html judge language progress ratios report_damage saved_runs spec unjudged witness "
    "workers yardstick",
    "unit/benchmarks": "page",
    "unit/planning": "compiled examples plans proposing verifying",
    "unit/hlo": "arrays cli collectives fuzz loops module offsets realisations replica_groups speed",
}
"""The files of tests that no package of the stack takes part in: text, pages, pictures, comparison, times, documents.
Processes that hang.

CI runs them on A, where XLA compiles in a third of the time: their commands are the same on all. So are those marked
``any_stack``: what the book's own loop and its float64 truths do. What the newest stack may do otherwise is marked
``newest_stack``: trainers of other people, planted faults of numbers, and what compilers for other devices write, which
of a pinned stack change with its pins alone. Other tests run on both, and so do those of a file of this table that a
stack takes part in, which are marked ``every_stack``: what they train is judged."""

LONGEST_FIRST = (
    "faults/test_saboteurs.py",
    "system/test_healthy.py",
    "faults/test_accelerated.py",
    "system/test_check.py",
    "faults/test_planted_operations.py",
    "system/test_adopt.py",
    "system/test_upgrade.py",
    "system/test_plugin.py",
    "system/test_kept_state.py",
    "system/test_case_timeout.py",
    "faults/test_loaders.py",
    "system/test_distributed.py",
    "system/test_adapters.py",
    "system/test_run_faults.py",
    "system/test_ab.py",
    "faults/test_lost_processes.py",
    "system/test_launch.py",
    "faults/test_flags.py",
    "faults/test_regressions.py",
    "system/test_plan_verified.py",
    "unit/test_train.py",
    "system/test_plan_compiled.py",
    "faults/test_runs.py",
    "truth/test_measured.py",
    "unit/hlo/test_realised.py",
    "faults/test_operators.py",
    "faults/test_harness_mutants.py",
    "system/test_real_runs.py",
)
"""Files that take a minute or more, whole on one worker of xdist: begun last, one of them would be waited for alone."""


def pytest_configure(config):
    """Make the markers known, and have xdist hand the files out in their order here, not by their number of tests."""
    config.option.loadscopereorder = False
    config.addinivalue_line("markers", "any_stack: CI runs it on the older of two stacks, which compiles faster")
    config.addinivalue_line("markers", "newest_stack: CI runs it on the newer of two stacks")
    config.addinivalue_line("markers", "every_stack: CI runs it on both stacks, whatever is said of its file")
    config.addinivalue_line("markers", "thorough: one of many of its kind, of which `make thorough` runs all")


def runs_nowhere(item):
    """Whether CI leaves a test out on both stacks."""
    return all(map(item.get_closest_marker, ("any_stack", "newest_stack")))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what only thorough runs have, unless a test is named; mark what need not run on a second stack. The
    longest files come first, whoever shuffles them."""
    if not config.getoption("thorough") and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("thorough")])
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    here = Path(__file__).parent
    files = {here / folder / f"test_{name}.py" for folder, names in ANY_STACK.items() for name in names.split()}
    for item in items:
        if item.path in files and not item.get_closest_marker("every_stack"):
            item.add_marker(pytest.mark.any_stack)
    if idle := [item.nodeid for item in items if runs_nowhere(item)]:
        raise pytest.UsageError(f"{idle[0]} is marked any_stack and newest_stack: CI would run it on no stack")
    result = yield
    first = {here / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
    return result


def pytest_addoption(parser):
    """What CI asks for, and a machine without a browser cannot give; and what takes more than an hour."""
    parser.addoption("--require-browser", action="store_true", help="tests of pages fail where no browser starts")
    parser.addoption("--thorough", action="store_true", help="run every planted fault, every healthy trainer")


def pytest_terminal_summary(terminalreporter):
    """Say in one loud line what was not exercised for want of a browser: a skip is no pass."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    idle = [reason for reason in skipped if reason.startswith("Skipped: no browser")]
    if idle:
        reason = idle[0].removeprefix("Skipped: ")
        terminalreporter.write_line(f"NOT EXERCISED: {len(idle)} tests of pages: {reason}", yellow=True, bold=True)


@pytest.fixture(autouse=True, scope="session")
def no_worker():
    """A run of pytest that a test starts does not take itself for a worker, where nothing would be timed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        patch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_code():
    """What tests compile in their own process becomes machine code as quickly as in an observing one. XLA reads its
    flags once, as its first client starts; what a test starts later has those of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", " ".join([*QUICK_CODE, os.environ.get("XLA_FLAGS", "")]).strip())
        jax.devices()


@pytest.fixture
def saved(tmp_path):
    """Writes a run of these benchmarks, and returns its path."""
    return lambda *entries, name="bench", **told: save(tmp_path / f"{name}.json", *entries, **told)


@pytest.fixture
def reported(tmp_path):
    """Writes a report of these cases, and returns its path."""

    def report(*cases):
        path = tmp_path / "report.json"
        path.write_text(json.dumps(new_report() | {"cases": list(cases)}), encoding="utf-8")
        return path

    return report
