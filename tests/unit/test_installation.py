"""Where the suites are, by which words a user names them, and with which settings pytest runs them."""

import configparser
import os
import shlex
import tomllib
from pathlib import Path

import pytest

from meshproof import installation
from meshproof.installation import PACKAGES, home, import_path, locate, settings
from tests.stacks import ROOT

SUITE = "suites/test_losses_equal_truth.py"


@pytest.mark.parametrize("test", [SUITE, f"{SUITE}::test_x[a/b-jax@data=8,model=2]", "suites/", "benchmarks/"])
def test_a_test_is_named_as_in_a_checkout(test, tmp_path, monkeypatch):
    """From any folder; then nothing else is run. So is one by its path from here."""
    monkeypatch.chdir(tmp_path)
    path = str(ROOT / test).removesuffix("/")
    assert locate(["-x", test]) == ["-x", path]
    assert locate([os.path.relpath(ROOT / test.partition("::")[0], tmp_path)]) == [path.partition("::")[0]]


@pytest.mark.parametrize("word", ["suites", "-k", "suites/expectations.toml", "suites/test_nowhere.py", "test_x.py::t"])
def test_another_word_names_no_test_of_the_suites(word):
    """An expression, a file of another kind, a test of somebody else: all suites are run, and pytest gets the word."""
    assert locate([word]) == [str(ROOT / "suites"), word]


def test_both_homes_have_the_same_settings():
    """What pytest is told of the suites in a checkout and of those in a wheel."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "meshproof" / "check.ini", encoding="utf-8")
    ours = parser["pytest"]
    theirs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    plugins = (ROOT / "conftest.py").read_text(encoding="utf-8").partition("pytest_plugins = ")[2]
    loaded = [word for plugin in eval(plugins) for word in ("-p", plugin)]  # noqa: S307 - a list of names
    assert shlex.split(ours["addopts"]) == [*theirs["addopts"], *loaded]
    assert ours["filterwarnings"].split("\n")[1:] == theirs["filterwarnings"]
    assert ours.keys() == theirs.keys() - {"testpaths", "pythonpath"}
    assert (home(), settings()) == (ROOT, ROOT / "pyproject.toml")


def test_another_environment_sees_the_packages_and_nothing_beside_them(tmp_path, monkeypatch):
    """Of a wheel: links, which are found again; the other environment has its own stack."""
    packages = tmp_path / "site-packages"
    for name in (*PACKAGES, "jax"):
        (packages / name / "suites").mkdir(parents=True)
    (packages / "meshproof" / "suites" / "test_x.py").touch()
    monkeypatch.setattr(installation, "PACKAGE", packages / "meshproof")
    monkeypatch.setenv("MESHPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", "given")
    monkeypatch.chdir(tmp_path)
    here, shared, given = import_path().split(os.pathsep)
    assert (here, given) == (str(tmp_path), "given") and {path.name for path in Path(shared).iterdir()} == {*PACKAGES}
    assert import_path().split(os.pathsep)[1] == shared
