"""What travels in the wheel imports nothing that the wheel does not require."""

import ast
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.stacks import ROOT
from tests.wheels import TRAVELS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    "meshproof/plots/": "plots",
    "reference_impl/lifecycle/loss_curves.py": "plots",
    "benchmarks/peers/": "peers",
    "reference_impl/lifecycle/data_loading.py": "data",
}
"""Rooms and files that need an extra, and say so where it is not installed."""

PACKAGES = {"meshproof", "reference_impl"}
"""What of the house may be named: the suites and benchmarks have other names in the wheel, and import relatively."""

installed = cache(packages_distributions)


def required(name):
    """The distributions that a file may import, by its path in the checkout."""
    extra = next((extra for room, extra in EXTRAS.items() if name.startswith(room)), None)
    texts = [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] if extra else ())]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def imports(source):
    """The top-level names that a source imports, wherever it does so, but for Python's own and relative ones."""
    for node in ast.walk(ast.parse(source)):
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            named = [node.module]
        yield from {name.partition(".")[0] for name in named} - sys.stdlib_module_names


def undeclared(name, source):
    """The imports of a file that no requirement brings; what is not installed is taken by its name."""
    known = installed()
    for imported in imports(source):
        brought = {canonicalize_name(each) for each in known.get(imported, [imported])}
        if imported not in PACKAGES and not brought & required(name):
            yield f"{name} imports {imported}"


def test_what_is_imported_is_required():
    """By pyproject.toml, of every room that travels, or by the extra of its own."""
    found = []
    for room in TRAVELS:
        for path in sorted((ROOT / room).rglob("*.py")):
            found += undeclared(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    assert not found


@pytest.mark.parametrize(
    ("name", "source", "imported"),
    [
        ("suites/test_x.py", "def late():\n    import yaml.nodes", "yaml"),
        ("benchmarks/x.py", "from torch import nn", "torch"),
        ("meshproof/html/x.py", "import matplotlib.pyplot", "matplotlib"),
        ("benchmarks/x.py", "from benchmarks.y import z", "benchmarks"),
        ("meshproof/x.py", "from hypothesis import given", "hypothesis"),
    ],
)
def test_an_import_of_more_is_noticed(name, source, imported):
    """Of a tool of the developers, of an extra elsewhere, or of a room by the name that it has not in the wheel."""
    assert list(undeclared(name, source)) == [f"{name} imports {imported}"]
