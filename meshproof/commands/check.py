"""`meshproof check`: pytest, on the suites of this installation, from any folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshproof.commands.failing import fail

if TYPE_CHECKING:
    import pytest

PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For typer: what it does not know is pytest's."""

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="PYTEST-OPTION", help="Passed on; `meshproof check -h` lists them.", show_default=False),
]


class Asked:
    """What was typed, for the record of the run: pytest gets more."""

    __name__ = "meshproof-check"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Have progress name files as ids do, and not by the way from here to where they are installed."""
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter.startpath = session.config.rootpath


def check(words: Words = None) -> None:
    """Does the stack that is installed here train every parallelism strategy the same way?

    Trains every strategy for some steps on virtual CPU devices, with the JAX, Flax and Optax of this environment, and
    judges what it saw by every clause that applies. All of it takes minutes. No file of the current folder is read but
    what you name. It gets a `.pytest_cache`; compiled programs are kept in your cache folder for the next run.
    Exit code 0: no clause failed. 1: one did. Others are pytest's.

    - `meshproof check -k fsdp -n 4`: some strategies, in four processes

    - `meshproof check --impl my_trainer.meshproof`: your trainer, a module importable from the current folder

    - `meshproof check --conformance-report new.json`: keep the record, for `meshproof compare` and `meshproof html`

    - `meshproof check 'suites/test_….py::test_…[…]'`: one test, as a failure names it
    """
    import pytest

    from meshproof.installation import CHECK, InstallationError, check_folder, is_another_checkout, locate, settings

    given = words or []
    if is_another_checkout(Path.cwd()):
        raise typer.Exit(subprocess.run([sys.executable, "-m", *CHECK, *given]).returncode)
    try:
        check_folder(Path.cwd())
        arguments = ["-c", str(settings()), *locate(given)]
    except InstallationError as error:
        fail(str(error))
    if "no:cacheprovider" not in given:
        arguments += ["-o", f"cache_dir={Path.cwd() / '.pytest_cache'}"]
    if not any(word.startswith("benchmarks/") for word in given):
        arguments += ["-p", "no:benchmark"]  # it would leave an empty folder here
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pytest` does
    raise typer.Exit(pytest.main(arguments, plugins=[Asked(given)]))
