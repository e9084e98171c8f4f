"""Isolated environments of a stack: resolved and made by uv, and kept for the next time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from packaging.requirements import Requirement
from packaging.version import Version

from meshproof.files import replace_text

OLDEST = Version("3.11")
"""The oldest Python that meshproof itself runs on."""

PINS = "resolved.txt"
"""The file of an environment's resolved packages. It is written last: a folder without it is incomplete."""


PATIENCE = 3600.0
"""Seconds in which uv must be done: on a slow line JAX takes many minutes, and what has no wheel is built."""


class StackError(Exception):
    """No environment can be made of a stack; the message has the resolver's reason."""


@dataclass(frozen=True)
class Stack:
    """What a user asks for: pip requirements, and optionally a Python (``3.12``, or an interpreter's path)."""

    requirements: tuple[str, ...]
    python: str | None = None
    prereleases: bool = False


@dataclass(frozen=True)
class Environment:
    """An interpreter, and what is installed beside it, as ``name==version``."""

    python: Path
    packages: tuple[str, ...]


def read_requirements(text: str) -> tuple[str, ...]:
    """Split ``jax==0.10.2,flax>=0.12,<0.13`` at each comma that a name or a path follows. Raises `StackError`."""
    parts = re.split(r",(?![^\[]*\])(?=\s*[\w./])", text)
    found = tuple(part.strip() for part in parts if part.strip(" ,"))
    if not found:
        raise StackError(f"{text!r} names no requirement; expected the like of jax==0.12.0.1,flax==0.12.12")
    return found


def open_environment(
    text: str,
    python: str | None = None,
    prereleases: bool = False,
    say: Callable[[str], object] = lambda line: None,
    beside: Sequence[str] = (),
) -> Environment:
    """The environment that ``text`` names: a virtual environment's folder as it is, or requirements and those beside.

    Raises `StackError`.
    """
    if not text.strip():
        raise StackError(f"{text!r} names no stack; expected requirements such as jax==0.12.0.1, or a venv's folder")
    if not Path(text).is_dir():
        return make_environment(Stack((*read_requirements(text), *beside), python, prereleases), say=say)
    if python:
        raise StackError(f"{text} is an environment, which has its Python; drop {python}")
    return describe(_interpreter(Path(text)))


def make_environment(stack: Stack, say: Callable[[str], object] = lambda line: None) -> Environment:
    """An environment with the stack and what meshproof needs; made only if it does not exist.

    The interpreter is the first that the requirements admit: this one, or one that uv finds. Raises `StackError`.
    """
    wanted = [*stack.requirements, *own_requirements()]
    reasons: dict[str, str] = {}
    for python in [stack.python] if stack.python else list(interpreters()):
        say(f"resolving {', '.join(stack.requirements)} for {python}")
        options = ["--no-header", "--no-annotate", *(["--prerelease", "allow"] if stack.prereleases else [])]
        resolved = _uv("--quiet", "pip", "compile", "-", "--python", python, *options, given=wanted)
        if resolved.returncode == 0:
            return _install(python, resolved.stdout, _contents(stack), say)
        reasons.setdefault(resolved.stderr.strip(), python)
    found = "\n".join(f"for {python}: {reason}" for reason, python in reasons.items())
    raise StackError(f"{', '.join(stack.requirements)} cannot be resolved\n{found or 'no interpreter was found'}")


def releases(package: str, low: str, high: str, prereleases: bool = False) -> list[str]:
    """The released versions strictly between two, newest first, that can be installed on an interpreter here."""
    found: set[str] = set()
    options = ["--no-deps", "--no-header", "--no-annotate", "--prerelease", "allow" if prereleases else "disallow"]
    for python in interpreters():
        below = high
        while True:
            wanted = f"{package}>{low},<{below}"
            resolved = _uv("--quiet", "pip", "compile", "-", "--python", python, *options, given=[wanted])
            if resolved.returncode:
                break
            below = Requirement(resolved.stdout.strip()).specifier.__str__().removeprefix("==")
            found.add(below)
    return sorted(found, key=Version, reverse=True)


def own_requirements() -> list[str]:
    """What meshproof needs itself, without its extras."""
    return [text for text in requires("meshproof") or () if "extra" not in str(Requirement(text).marker)]


def interpreters() -> Iterator[str]:
    """This interpreter, then the newest of each other version that uv finds or pyenv holds."""
    yield sys.executable
    seen: set[tuple[int, ...]] = {sys.version_info[:2]}
    listed = _uv("python", "list", "--only-installed", "--output-format", "json")
    found = json.loads(listed.stdout or "[]")
    for entry in sorted(found, key=lambda entry: Version(entry["version"]), reverse=True):
        version = Version(entry["version"])
        if version >= OLDEST and version.release[:2] not in seen and entry["implementation"] == "cpython":
            seen.add(version.release[:2])
            yield entry["path"]


def describe(python: Path) -> Environment:
    """The environment of an interpreter. Raises `StackError` if it does not run."""
    lines = (
        "import importlib.metadata as m; "
        "print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()), sep=chr(10))"
    )
    try:
        listed = subprocess.run([python, "-I", "-c", lines], capture_output=True, text=True, timeout=PATIENCE / 10)
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{python} does not run: it says nothing for {error.timeout:g} s") from error
    if listed.returncode:
        raise StackError(f"{python} does not run: {listed.stderr.strip()}")
    return Environment(python, tuple(listed.stdout.splitlines()))


def cache_folder() -> Path:
    """The folder of environments: under ``$MESHPROOF_CACHE``, else in the user's cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshproof"
    return Path(os.environ.get("MESHPROOF_CACHE") or usual) / "environments"


def _install(python: str, pins: str, contents: str, say: Callable[[str], object]) -> Environment:
    """The environment of resolved packages, keyed by them, the interpreter, and the contents of local wheels."""
    key = hashlib.sha256("\n".join((python, pins, contents)).encode()).hexdigest()[:16]
    folder = cache_folder() / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with making(folder):
        if not (folder / PINS).exists():
            say(f"making {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            _must("venv", "--python", python, str(folder))
            wanted = folder / "wanted.txt"
            wanted.write_text(pins, encoding="utf-8")
            _must("pip", "install", "--no-deps", "--python", str(_interpreter(folder)), "-r", str(wanted))
            replace_text(folder / PINS, pins)
    return describe(_interpreter(folder))


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Nobody else makes this environment meanwhile. Raises `StackError` where somebody does for longer than needed."""
    try:
        with FileLock(f"{folder}.lock", timeout=3 * PATIENCE):
            yield
    except Timeout as error:
        raise StackError(f"{folder} is being made by another process for {3 * PATIENCE:g} s; end that one") from error


def _interpreter(folder: Path) -> Path:
    for name in ("bin/python", "Scripts/python.exe"):
        if (folder / name).exists():
            return (folder / name).absolute()
    raise StackError(f"{folder} is a folder and no environment: it has no bin/python; name requirements, or a venv")


def _contents(stack: Stack) -> str:
    """The SHA-256 of each local wheel among the requirements: a rebuilt wheel is another stack."""
    words = (word.removeprefix("file://") for text in stack.requirements for word in text.split())
    return " ".join(hashlib.sha256(Path(word).read_bytes()).hexdigest() for word in words if Path(word).is_file())


def _must(*arguments: str) -> None:
    done = _uv("--quiet", *arguments)
    if done.returncode:
        raise StackError(f"uv {' '.join(arguments)} failed: {done.stderr.strip()}")


def _uv(*arguments: str, given: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run uv, with all of pyenv's interpreters on the PATH, also those that pyenv has not selected."""
    if find_spec("uv"):
        from uv import find_uv_bin

        uv: str | None = find_uv_bin()
    else:
        uv = shutil.which("uv")
    if uv is None:
        raise StackError("uv makes the environments, and there is none: `pip install uv`")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, pyenv.glob("versions/*/bin"))])
    command = [uv, *arguments]
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": os.environ | {"PATH": path}}
    try:
        return subprocess.run(command, input="\n".join(given), timeout=PATIENCE, **options)
    except subprocess.TimeoutExpired as error:
        raise StackError(f"uv {' '.join(arguments)} is not done in {PATIENCE:g} s") from error
