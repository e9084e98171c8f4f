"""Environments are resolved and made by uv once, found again, and made anew only where something in them is new."""

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from meshproof import environments
from meshproof.cli import app
from meshproof.environments import (
    PINS,
    Stack,
    StackError,
    interpreters,
    make_environment,
    open_environment,
    own_requirements,
    read_requirements,
)


def write_wheel(folder, name, version, *requires, python=">=3.8", content=""):
    """A wheel of one empty module."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Requires-Python: {python}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", content)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        for file, text in {"METADATA": "\n".join(lines) + "\n", "WHEEL": tags, "RECORD": ""}.items():
            wheel.writestr(f"{name}-{version}.dist-info/{file}", text)
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """An index of a few wheels, and no other."""
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": tmp_path, "CACHE_DIR": tmp_path / "cache"}.items():
        monkeypatch.setenv(f"UV_{name}", str(value))
    monkeypatch.setenv("MESHPROOF_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(environments, "own_requirements", lambda: [])
    write_wheel(tmp_path, "toylib", "1.0")
    write_wheel(tmp_path, "toyjax", "1.0", "toylib")
    write_wheel(tmp_path, "toyjax", "2.0rc1", "toylib")
    write_wheel(tmp_path, "toynew", "1.0", python=">=99")
    return tmp_path


def make(*requirements, **settings):
    """The environment, and what was said while it was made."""
    said = []
    return make_environment(Stack(requirements, **settings), say=said.append), "\n".join(said)


def test_environment_is_made_once(index):
    """The whole resolved set is installed; the second time it is found; where it was left half made, made anew."""
    first, said = make("toyjax")
    assert "making" in said
    assert set(first.packages) >= {"toyjax==1.0", "toylib==1.0"}
    again, said = make("toyjax")
    assert again == first and "making" not in said
    (first.python.parents[1] / PINS).unlink()
    again, said = make("toyjax")
    assert again == first and "making" in said


def test_prereleases_are_asked_for(index):
    """A pre-release is taken where it is named, or where all are admitted."""
    assert "toyjax==2.0rc1" in make("toyjax==2.0rc1")[0].packages
    assert "toyjax==2.0rc1" in make("toyjax", prereleases=True)[0].packages


def test_local_wheel_built_anew_is_another_stack(index):
    """A wheel is known by its contents and not by its name."""
    wheel = index / "toylocal-1.0-py3-none-any.whl"
    prefixes = []
    for content in ("A = 1", "A = 2", None):
        if content:
            write_wheel(index, "toylocal", "1.0", content=content)
        prefixes.append(make(f"toylocal @ file://{wheel}")[0].python)
    assert prefixes[0] != prefixes[1] == prefixes[2]


def test_interpreter_is_one_that_the_requirements_admit(index, monkeypatch):
    """The first interpreter for which the requirements resolve is taken; where one is named, only that."""
    monkeypatch.setattr(environments, "interpreters", lambda: ["no-such-python", sys.executable])
    environment, said = make("toyjax")
    assert "for no-such-python" in said and environment.packages
    with pytest.raises(StackError, match="no-such-python"):
        make("toyjax", python="no-such-python")


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [("toyjax==9", "no version of toyjax==9"), ("toynew", "requires Python >=99"), ("?", r"\?")],
)
def test_unresolvable_stack_is_one_error(index, requirement, reason):
    """What cannot be resolved ends with the resolver's reason, and leaves nothing behind."""
    with pytest.raises(StackError, match=rf"cannot be resolved\nfor (.|\n)*{reason}"):
        make(requirement)
    assert not (index / "kept").exists()


def test_ab_says_why_there_is_no_environment(index):
    """`meshproof ab` ends with the resolver's reason, on one side as on the other."""
    for sides in (["--from", "toyjax==9", "--to", "toyjax"], ["--from", sys.prefix, "--to", "toyjax==9"]):
        done = CliRunner().invoke(app, ["ab", *sides])
        assert done.exit_code == 2
        assert "toyjax==9 cannot be resolved" in done.stderr and "Traceback" not in done.output


def test_environment_may_be_there_already(tmp_path):
    """A folder is taken for the environment that it is, and any other folder is refused."""
    given = open_environment(sys.prefix)
    assert any(package.startswith("pytest==") for package in given.packages)
    with pytest.raises(StackError, match="no environment: it has no bin/python"):
        open_environment(str(tmp_path))
    with pytest.raises(StackError, match=r"has its Python; drop 3\.12"):
        open_environment(sys.prefix, "3.12")


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("jax==0.10.2,flax==0.12.8", ("jax==0.10.2", "flax==0.12.8")),
        ("jax>=0.10,<0.11, flax", ("jax>=0.10,<0.11", "flax")),
        ("jax[cuda12,k8s]==0.12,./dist/flax.whl", ("jax[cuda12,k8s]==0.12", "./dist/flax.whl")),
    ],
)
def test_requirements_are_parted_by_commas(text, requirements):
    """A comma within a requirement parts nothing."""
    assert read_requirements(text) == requirements
    with pytest.raises(StackError, match="names no requirement"):
        read_requirements(" , ")


def test_own_requirements_are_those_without_extras():
    """What meshproof needs to run is installed beside a stack, and what its developers need is not."""
    names = " ".join(own_requirements())
    assert "jsonschema-rs" in names and "ruff" not in names


def test_this_interpreter_comes_first():
    """Where it is admitted, a stack runs on the interpreter that meshproof runs on."""
    assert next(interpreters()) == sys.executable


def test_interpreters_that_pyenv_holds_are_found(tmp_path, monkeypatch):
    """Though none is chosen, and its shims do not run."""
    held = tmp_path / "versions" / "1" / "bin" / "python"
    held.parent.mkdir(parents=True)
    held.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(environments, "sys", SimpleNamespace(executable="older", version_info=(3, 0)))
    assert [*interpreters()] == ["older", str(held)]


def test_missing_uv_is_one_error(monkeypatch):
    """Without uv the error says what to install."""
    monkeypatch.setattr(environments, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StackError, match="pip install uv"):
        make_environment(Stack(("jax",)))
