"""Without a browser the tests of pages are not exercised, loudly, or fail where one is required; the rest passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser

ROOT = Path(__file__).parents[2]
TESTS = ("tests/system/test_html_in_browser.py::test_print_shows_what_is_closed", "tests/unit/test_files.py")


def run_without_browser(tmp_path, *options):
    """One test of pages and one of another kind, where no browser is on the PATH and Playwright has none."""
    away = os.environ | {"PATH": str(Path(sys.executable).parent), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *TESTS,
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, env=away, capture_output=True, text=True)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_missing_browser_is_said_loudly(tmp_path, workers):
    """One line counts the tests and says what to do; nothing fails."""
    run = run_without_browser(tmp_path, "-n", workers)
    assert run.returncode == 0, run.stdout + run.stderr
    [line] = [line for line in run.stdout.splitlines() if line.startswith("NOT EXERCISED")]
    assert line.startswith("NOT EXERCISED: 1 tests of pages: no browser: neither chromium")
    assert "`apt-get install chromium libatomic1`" in line


def test_missing_browser_fails_where_one_is_required(tmp_path):
    """With --require-browser nobody can take the run for a whole one."""
    run = run_without_browser(tmp_path, "-n", "0", "--require-browser")
    assert run.returncode == 1 and "no browser: neither chromium" in run.stdout, run.stdout + run.stderr


def test_browser_that_does_not_start_is_named(tmp_path, monkeypatch):
    """A file of that name is not yet a browser."""
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    assert f"{broken} does not start" in browser.missing()


def test_driver_that_does_not_start_is_no_traceback(monkeypatch):
    """A machine without the driver's libraries has no browser, and make test goes on."""

    class Lacking:
        def start(self):
            raise Exception("Connection closed while reading from the driver")

    monkeypatch.setattr(browser, "sync_playwright", Lacking)
    assert "Playwright's driver does not start (Connection closed" in browser.missing()


def test_attempts_end_where_a_browser_starts(monkeypatch):
    """What is found is not brought again; what fails or is not allowed is followed by the next attempt."""
    reasons = iter(["no browser", "no browser", None])
    monkeypatch.setattr(browser, "missing", lambda: next(reasons))
    monkeypatch.setattr(browser, "attempts", lambda: [[["one"]], [["two"], ["three"]], [["four"]]])
    asked = []
    monkeypatch.setattr(browser, "run", lambda command: asked.append(command[0]) or True)
    assert browser.bring() is None
    assert asked == ["one", "two", "three"]
