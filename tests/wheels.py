"""The wheel of this checkout: built, compared with the checkout, and installed."""

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

from uv import find_uv_bin

from tests.stacks import INSTALLED, ROOT, make_stack

TRAVELS = {"meshproof": "meshproof", "reference_impl": "reference_impl"}
TRAVELS |= {"suites": "meshproof/suites", "benchmarks": "meshproof/benchmarks"}
"""The rooms of the checkout, and where they are in the wheel."""

LEFT = ("benchmarks/baselines/", "benchmarks/results/")
"""What is of one machine, or of the project's pages."""


def uv(*arguments):
    """Run uv, which must not fail."""
    done = subprocess.run([find_uv_bin(), "--quiet", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def build(folder, *options, source=ROOT):
    """Build ``--wheel`` or ``--sdist`` into a folder, without the registry where this environment can; its path."""
    here = ["--no-build-isolation", "--python", sys.executable] if find_spec("hatchling") else []
    uv("build", *options, *here, "--out-dir", folder, source)
    [built] = (path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
    return built


def contents(wheel):
    """The files of a wheel that are not about it, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {file.filename: file.CRC for file in archive.infolist() if ".dist-info/" not in file.filename}


def expected(checkout=ROOT):
    """The files that a wheel of a checkout must have, and no other."""
    for room, place in TRAVELS.items():
        for path in (checkout / room).rglob("*"):
            name = path.relative_to(checkout).as_posix()
            if path.is_file() and "__pycache__" not in path.parts and not name.startswith(LEFT):
                yield f"{place}/{path.relative_to(checkout / room).as_posix()}"


def install(wheel, folder):
    """The wheel alone, in an environment that sees what this one has, but not this checkout; its `bin`."""
    make_stack(folder, sees=[INSTALLED])
    uv("pip", "install", "--offline", "--no-deps", "--python", folder, wheel)
    return Path(folder, "bin")
