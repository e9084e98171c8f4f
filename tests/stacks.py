"""Environments that see what this one has, and in which something can be planted."""

import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make_stack(folder):
    """A virtual environment; returns where its packages would be."""
    venv.create(folder, symlinks=True)
    packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    packages.joinpath("all.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return packages
