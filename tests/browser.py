"""The browser in which tests look at pages: ``python -m tests.browser`` brings one, if that needs no question."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Error, Playwright, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "libatomic1")
"""Debian's: the browser, and what Playwright's own driver needs and does not bring."""

PATIENCE = 300
"""Seconds for one attempt to install."""

HELP = "`apt-get install chromium libatomic1` or `python -m playwright install --with-deps chromium` brings one"


class NoBrowserError(Exception):
    """No browser starts on this machine; the message says what was tried, and what to do."""


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser: the system's Chromium or Chrome, else Playwright's own. Raises `NoBrowserError`."""
    try:
        playwright = sync_playwright().start()
    except Exception as error:  # of no class of its own, where the driver cannot be run
        raise NoBrowserError(f"no browser: Playwright's driver does not start ({error}); {HELP}") from error
    try:
        started = launch(playwright)
        yield started
        started.close()
    finally:
        playwright.stop()


def launch(playwright: Playwright) -> Browser:
    """The first browser that starts. Raises `NoBrowserError`."""
    installed = [path for path in map(shutil.which, NAMES) if path]
    own = playwright.chromium.executable_path
    tried = []
    for path in (*installed, *([own] if Path(own).exists() else ())):
        try:
            return playwright.chromium.launch(executable_path=path)
        except Error as error:
            tried.append(f"{path} does not start ({error.message.splitlines()[0]})")
    found = "; ".join(tried) or f"neither {', '.join(NAMES)} nor Playwright's own is installed"
    raise NoBrowserError(f"no browser: {found}; {HELP}")


def missing() -> str | None:
    """Why there is no browser, where there is none."""
    try:
        with browser():
            return None
    except NoBrowserError as error:
        return str(error)


def attempts() -> list[list[list[str]]]:
    """What may bring one without a question, in the order in which it is tried: each attempt a list of commands."""
    own = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    apt = shutil.which("apt-get")
    root = [] if os.geteuid() == 0 else [shutil.which("sudo") or "", "-n"]
    if not apt or "" in root:
        return [own]
    return [own, [[*root, apt, "update", "-qq"], [*root, apt, "install", "-qq", "--no-install-recommends", *PACKAGES]]]


def run(command: list[str]) -> bool:
    """Whether a command came to a good end, in time."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def bring() -> str | None:
    """Try to have a browser that starts; why there is still none, where that is so."""
    reason = missing()
    for commands in attempts():
        if reason is None:
            break
        print(f"no browser to look at pages with yet: {' '.join(commands[-1])}", flush=True)
        if all(map(run, commands)):
            reason = missing()
    return reason


if __name__ == "__main__":
    if reason := bring():
        print(f"make test goes on without a browser: {reason}")
