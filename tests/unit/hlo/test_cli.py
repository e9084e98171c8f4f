"""`meshproof census` prints the census, and one clear line where it cannot."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from meshproof.cli import app
from tests.unit.hlo.texts import FIXTURES, STORED, counted, stored

FSDP = str(FIXTURES / "cpu-0.12.0.1-two_layers.hlo")


def run(*arguments: str, given: str | None = None) -> Result:
    """The command's result."""
    return CliRunner().invoke(app, ["census", *arguments], input=given)


@pytest.mark.parametrize("name", STORED)
def test_json_is_the_census(name: str) -> None:
    """`--json` prints {"collectives": […]} with one object per entry and null for unknown."""
    expected = counted(name)
    mesh = ",".join(f"{axis}={size}" for axis, size in expected.mesh.items())
    result = run(str(FIXTURES / f"{name}.hlo"), "--mesh", mesh, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert list(printed) == ["collectives"]
    keys = ["operation", "axes", "executions", "tensors", "bytes", "dtype", "realized_as", "phase", "wire_bytes"]
    assert all(list(entry) == keys for entry in printed["collectives"])
    assert {(e["operation"], tuple(e["axes"]), e["executions"], e["bytes"]) for e in printed["collectives"]} == {
        (c.operation, c.axes, c.executions, c.bytes) for c in expected.collectives
    }


def test_table_shows_every_entry() -> None:
    """Without --json a table shows operations, axes, bytes and how they are realised."""
    result = run(FSDP, "--mesh", "data=8")
    assert result.exit_code == 0
    for shown in ("all-reduce + dynamic-slice", "8,390,656", "reduce-scatter", "backward", "realized as"):
        assert shown in result.stdout


def test_table_shows_unknown_as_a_dash() -> None:
    """Unknown counts are a dash in the table, not a number."""
    result = run(str(FIXTURES / "cpu-0.12.0.1-loops.hlo"), "--mesh", "data=2,model=4")
    assert "–" in result.stdout


def test_reads_standard_input() -> None:
    """`-` reads the text from standard input."""
    result = run("-", "--mesh", "data=8", "--json", given=stored("cpu-0.12.0.1-two_layers"))
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["collectives"]) == 4


def test_no_communication_is_said() -> None:
    """A program that moves nothing is said to move nothing."""
    text = "HloModule m\n\nENTRY %main (p: f32[]) -> f32[] {\n  ROOT %p = f32[] parameter(0)\n}\n"
    assert run("-", "--mesh", "data=1", given=text).stdout == "no communication\n"


BAD = {
    "no size": ("data", "'data' is no axis; expected name=size"),
    "zero": ("data=0", "'data=0' is no axis"),
    "negative": ("data=-8", "'data=-8' is no axis"),
    "no name": ("=8", "'=8' is no axis"),
    "empty": ("", "'' is no axis"),
    "not a number": ("data=eight", "'data=eight' is no axis"),
    "trailing comma": ("data=8,", "'' is no axis"),
    "twice": ("data=2,data=4", "axis 'data' is named twice"),
    "other size": ("data=4", "compiled for 8 devices"),
}


@pytest.mark.parametrize(("mesh", "problem"), BAD.values(), ids=BAD)
def test_bad_mesh_is_one_clear_line(mesh: str, problem: str) -> None:
    """A bad --mesh ends with exit code 2 and one line on stderr: the value, the form expected, an example."""
    result = run(FSDP, "--mesh", mesh)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1
    assert "expected" in result.stderr or "give the mesh" in result.stderr


def test_bad_text_is_one_clear_line(tmp_path: Path) -> None:
    """A missing file, a binary one, and text that is no compiled HLO end with exit code 2 and one line of error."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    lowered = tmp_path / "lowered.txt"
    lowered.write_text("module @jit_f {\n}\n", encoding="utf-8")
    cut = tmp_path / "cut.hlo"
    cut.write_text(stored("cpu-0.12.0.1-two_layers")[:9000], encoding="utf-8")
    said = {
        tmp_path / "missing": "No such file",
        binary: "not UTF-8",
        lowered: "StableHLO",
        cut: "truncated",
        tmp_path: "Is a directory",
    }
    for file, problem in said.items():
        result = run(str(file), "--mesh", "data=8")
        assert result.exit_code == 2
        assert str(file) in result.stderr
        assert problem in result.stderr
        assert result.stderr.count("\n") == 1


def test_help_starts_no_jax() -> None:
    """Asking for help imports neither jax nor rich's tables, and census is a subcommand."""
    code = (
        "import sys; from typer.testing import CliRunner; from meshproof.cli import app;"
        "print(CliRunner().invoke(app, ['--help']).output);"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules, 'heavy imports'"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "census" in shown.stdout
