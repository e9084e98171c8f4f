"""`pytest benchmarks/` as its user runs it, with real steps: compared with itself, on few devices, on small ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshproof.cli import app

ROOT = Path(__file__).parents[2]
CASE = ("-k", "[single_device-jax-mlp")
TESTS = ("step", "forward", "cold_compile", "warm_compile", "init")
"""All that is timed of this case."""

TOO_SMALL = """
from benchmarks import fit

fit.device_bytes = lambda: 1
"""


def run(*arguments, path=""):
    """The benchmarks of this host's CPU, in a process of their own that finds modules in ``path`` too."""
    known = os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks/", "--target", "cpu", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": known},
        capture_output=True,
        text=True,
    )


@pytest.mark.thorough
def test_a_run_is_compared_with_one_of_the_same_code(tmp_path):
    """Saved, promoted and compared, every benchmark of a case has a verdict on its time, and no fact of it changed.

    Of each the time of compiling is known: nothing that was compiled for another purpose is taken for it.
    """
    first, second, folder = tmp_path / "first.json", tmp_path / "second.json", tmp_path / "baselines"
    saved = run(*CASE, "--benchmark-json", str(first))
    assert saved.returncode == 0, saved.stdout + saved.stderr
    times = {time["fullname"]: time["extra_info"] for time in json.loads(first.read_text())["benchmarks"]}
    assert {name.partition("::test_")[2].partition("_time[")[0] for name in times} == set(TESTS)
    assert all(info["measured"]["compile_seconds"] > 0 for info in times.values())
    promoted = CliRunner().invoke(app, ["baseline", "promote", str(first), "--folder", str(folder)])
    assert promoted.exit_code == 0, promoted.output
    assert [path.stem.rpartition("-")[2] for path in folder.iterdir()] == ["tiny"]
    compared = run(*CASE, "--benchmark-compare", "--baselines", str(folder), "--benchmark-json", str(second))
    found = json.loads(second.read_text())["meshproof"]
    assert not found["problems"], compared.stdout + compared.stderr
    outcomes = found["compared"]["outcomes"]
    assert outcomes.keys() == times.keys()
    assert set(outcomes.values()) <= {"same", "faster", "slower", "cannot tell"}, compared.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("devices", "names"),
    [
        (3, {"4092B", "65532B", "1048572B"}),
        (6, {"4080B", "65520B", "1048560B"}),
        (8, {"4KiB", "64KiB", "1024KiB"}),
    ],
)
def test_collectives_share_their_bytes_equally(tmp_path, devices, names):
    """On any number of devices all of them are timed, on the bytes that their names, identities and facts say."""
    saved = tmp_path / "saved.json"
    timed = run("-k", "test_collectives", "--devices", str(devices), "--benchmark-json", str(saved))
    assert timed.returncode == 0, timed.stdout + timed.stderr
    found = json.loads(saved.read_text())["benchmarks"]
    assert len(found) == 15 and {time["params"]["bytes_"] for time in found} == {bytes_of(name) for name in names}
    for time in found:
        [moved] = time["extra_info"]["facts"]["bytes_by_axis"].values()
        operation, name = time["extra_info"]["identity"]["model"].split("/")
        assert time["param"] == f"{name}-{operation}" and name in names and moved == bytes_of(name)


def bytes_of(name):
    """4096 of 4KiB."""
    return int(name[:-3]) * 1024 if name.endswith("KiB") else int(name[:-1])


def test_what_does_not_fit_is_not_run(tmp_path):
    """On a device that is too small every test of a case ends before anything is run, the forward pass too."""
    (tmp_path / "planted.py").write_text(TOO_SMALL, encoding="utf-8")
    refused = run(*CASE, "--benchmark-disable", "-p", "planted", path=tmp_path)
    assert f"{len(TESTS)} errors" in refused.stdout and "passed" not in refused.stdout, refused.stdout
    assert "DoesNotFitError" in refused.stdout
