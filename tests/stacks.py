"""Environments that see what this one has, and in which something can be planted."""

import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALLED = Path(sysconfig.get_path("purelib"))
FASTER = """
import optax

sgd = optax.sgd
optax.sgd = lambda rate, **settings: sgd(1.1 * rate, **settings)
"""
"""A stack that was patched without a word: its optimizer learns faster."""


def make_stack(folder, sees=(ROOT, INSTALLED)):
    """A virtual environment; returns where its packages would be."""
    venv.create(folder, symlinks=True)
    packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    packages.joinpath("all.pth").write_text("".join(f"{path}\n" for path in sees), encoding="utf-8")
    return packages


def make_faster(packages):
    """Have every interpreter of an environment start with that patch."""
    packages.joinpath("patched.py").write_text(FASTER, encoding="utf-8")
    packages.joinpath("patched.pth").write_text("import patched\n", encoding="utf-8")
