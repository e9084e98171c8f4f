"""Where this installation has its suites and benchmarks, and how they are reached from any folder.

In a checkout they stand beside `meshproof/`, and pyproject.toml has pytest's settings. A wheel has them inside it, with
``check.ini`` for settings: those of the folder that a user stands in are for the user's own tests.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from meshproof.cases import REFERENCE
from meshproof.environments import cache_folder

PACKAGE = Path(__file__).parent
PACKAGES = (PACKAGE.name, REFERENCE)
CHECK = (PACKAGE.name, "check")
"""The module and the command that run the suites and the benchmarks, of this or another environment's Python."""

TESTS = re.compile(r"(suites|benchmarks)(/test_\w+\.py)?")
"""A folder or a file of tests, relative to `home`."""


class InstallationError(ValueError):
    """This installation cannot be used from here; the message says why, and what to do."""


def home() -> Path:
    """The folder that holds ``suites/`` and ``benchmarks/``. Raises `InstallationError` where no folder does."""
    for folder in (PACKAGE, PACKAGE.parent):
        if any(folder.glob("suites/test_*.py")):
            return folder
    raise InstallationError(f"no suites/test_*.py in {PACKAGE} or beside it: install meshproof again")


def settings() -> Path:
    """The file with pytest's settings. pytest takes its folder, `home`, for the root of all test ids."""
    return home() / ("check.ini" if home() == PACKAGE else "pyproject.toml")


def locate(words: Iterable[str]) -> list[str]:
    """Pytest's words, with each test of this installation by its path; the suites are added where none is named.

    ``suites/test_x.py::test_x[fsdp-jax-mlp@data=8]`` is such a test in any folder: messages and reports name it so.
    """
    found = [(word, _test_path(word)) for word in words]
    named = [str(path) + word[len(word.partition("::")[0]) :] if path else word for word, path in found]
    return named if any(path for _, path in found) else [str(home() / "suites"), *named]


def _test_path(word: str) -> Path | None:
    """The file or folder of this installation's tests that a word names: from `home`, or from the current folder."""
    named, root = word.partition("::")[0], home().resolve()
    for path in ((root / named).resolve(), Path(named).resolve()):
        inside = path.relative_to(root).as_posix() if path.is_relative_to(root) else ""
        if "/" in named and TESTS.fullmatch(inside) and path.exists():
            return home() / inside
    return None


def is_another_checkout(folder: Path) -> bool:
    """Whether a folder is a checkout of Meshproof, and not the one that runs: ``python -m meshproof`` runs it there."""
    module = folder / PACKAGE.name / Path(__file__).name
    return module.exists() and not module.samefile(__file__)


def check_folder(folder: Path) -> None:
    """Raise `InstallationError` where there are no suites, or a module in this folder hides the installation's own."""
    home()
    for name in () if is_another_checkout(folder) else PACKAGES:
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.exists() and not path.samefile(PACKAGE.parent / name / "__init__.py"):
                raise InstallationError(
                    f"{path} hides {PACKAGE.parent / name}: from here Python would import it instead; "
                    f"rename it, or run this in another folder"
                )


def import_path() -> str:
    """``PYTHONPATH`` of a process of another environment: this folder, meshproof, the reference, and what was given.

    Not all that is installed beside them: the other environment has a stack of its own. Raises `InstallationError`.
    """
    check_folder(Path.cwd())
    shared = _links() if home() == PACKAGE else home()
    return os.pathsep.join([str(Path.cwd()), str(shared), *filter(None, [os.environ.get("PYTHONPATH")])])


def _links() -> Path:
    """A folder with nothing but links to the packages of the wheel; it is the same for the same installation."""
    key = hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:16]
    folder = cache_folder().parent / "installations" / key
    folder.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        try:
            (folder / name).symlink_to(PACKAGE.parent / name)
        except FileExistsError:
            continue
    return folder
