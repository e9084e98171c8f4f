"""The keys under which JAX keeps the programs of a table: of two fresh processes, by the files that they leave.

Run as a module with a table and the names of its programs, it compiles them into the cache of its environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from meshproof.observing.seen import Failed, Seen

SIZE = (2, 8)
"""The depth and width at which programs are compiled."""

LIMIT = 240
"""Seconds that a process has."""

Keys = Mapping[str, tuple[str, ...]]
"""The keys by program, of one process."""

PREFIX = "program_"
"""Of a program's function, by which JAX names its file."""


def observe_keys(table: str, programs: Sequence[str]) -> Seen[tuple[Keys, Keys]]:
    """The keys of these programs in two processes, whose sets of strings are in two orders."""
    found = []
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "programs"
        for seed in ("1", "2"):
            if told := failure(table, programs, folder, seed):
                return Failed(told)
            found.append(dict(kept(folder, programs)))
            rmtree(folder, ignore_errors=True)
    return found[0], found[1]


def failure(table: str, programs: Sequence[str], folder: Path, seed: str) -> str:
    """What went wrong in a process that compiles the programs into that folder, or nothing."""
    options = {"JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_ENABLE_COMPILATION_CACHE": "true"}
    options |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    command = [sys.executable, "-m", "meshproof.operations.growing.keys", table, *programs]
    try:
        run = subprocess.run(
            command,
            env={**os.environ, **options, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return f"expected a fresh process to compile {len(programs)} programs within {LIMIT} s, saw no end"
    told = run.stderr.strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
    return f"expected a fresh process to compile {len(programs)} programs, saw: {told[0]}" if run.returncode else ""


def kept(folder: Path, programs: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys of each program that a folder has."""
    for name in programs:
        start = f"jit_{PREFIX}{name}-"
        files = (path.name for path in folder.glob("*") if path.name.startswith(start))
        yield name, tuple(sorted({file.removeprefix(start).partition("-")[0] for file in files}))


def unequal(name: str, keys: tuple[Keys, Keys]) -> Iterator[str]:
    """A sentence if two processes keep a program under different keys, or not at all."""
    first, second = keys[0][name], keys[1][name]
    if not first or not second:
        yield f"expected a key of {name} in the compilation cache of a fresh process, saw none"
    elif first != second:
        yield (
            f"expected one key of {name} in two fresh processes, saw {first[0][:12]} and {second[0][:12]}: every "
            "process compiles it again; look for an id(), a random constant, or the order of a set in what is traced"
        )


def main(table: str, programs: Sequence[str]) -> None:
    """Compile programs of a table."""
    import jax

    from meshproof.operations.loading import load_table

    listed = load_table(table).programs
    for name in programs:
        function, given = listed[f"program-{name}@operations"].make(*SIZE)

        def program(*given: object, function: object = function) -> object:
            return function(*given)  # type: ignore[operator]

        program.__name__ = f"{PREFIX}{name}"
        jax.jit(program).lower(*given).compile()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
