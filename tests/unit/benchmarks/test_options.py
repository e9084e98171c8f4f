"""What `pytest benchmarks/` times is settled before anything starts: by the options, or by what the host has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_stack

ROOT = Path(__file__).parents[3]
NO_BACKEND = """
import jax
import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure():
    print("platforms:", jax.config.jax_platforms)
    jax.config.update("jax_platforms", "none_may_start")
"""
ACCELERATED = (
    NO_BACKEND
    + """
from benchmarks import host

host.accelerators = lambda: host.Accelerators("gpu", 2, "NVIDIA H200")
"""
)
REVERSED = (
    NO_BACKEND
    + """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    items.reverse()
    return (yield)
"""
)


OPTIONS = ["-p", "planted", "-p", "no:cacheprovider", "-p", "no:randomly", "--collect-only", "--benchmark-disable"]
EACH = "=== the next ===\n"
"""Printed before what is said of each of several lists of arguments."""


def collect(folder, plugin, *lists):
    """Collect benchmarks/ with each list of arguments in turn, in a process that can start no JAX backend."""
    (folder / "planted.py").write_text(plugin, encoding="utf-8")
    command = f"""
import sys
sys.path.insert(0, {str(folder)!r})
import pytest
for arguments in {[["benchmarks/", *OPTIONS, *arguments] for arguments in lists]!r}:
    for stream in sys.stdout, sys.stderr:
        print({EACH!r}, end="", file=stream, flush=True)
    code = pytest.main(arguments)
sys.exit(code)
"""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    return subprocess.run([sys.executable, "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("plugin", "arguments", "header", "platforms"),
    [
        (
            NO_BACKEND,
            [],
            "--size tiny on 8 virtual CPU devices (no accelerator); beyond steps only single_device",
            "cpu",
        ),
        (NO_BACKEND, ["--impl", "tests.implementations.minimal"], "--size tests.implementations.minimal on", "cpu"),
        (ACCELERATED, [], "--size small on 2 × NVIDIA H200\n", "None"),
        (ACCELERATED, ["--target", "cpu"], "--size tiny on 8 virtual CPU devices (NVIDIA H200); beyond", "cpu"),
    ],
)
def test_header_says_what_is_timed(tmp_path, plugin, arguments, header, platforms):
    """The host's accelerators if it has any, else virtual CPU devices; and collecting starts no JAX."""
    collected = collect(tmp_path, plugin, arguments)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert f"benchmarks: {header}" in collected.stdout
    assert f"platforms: {platforms}\n" in collected.stdout
    assert "test_step_time[" in collected.stdout and "test_collectives[" in collected.stdout


def test_few_cases_are_the_same_in_any_order(tmp_path):
    """Tests that are shuffled before these are chosen leave the same ones: a later run is to be compared with it."""
    names = [
        {line for line in collect(tmp_path, plugin, ["-q"]).stdout.splitlines() if "::" in line}
        for plugin in (NO_BACKEND, REVERSED)
    ]
    assert names[0] == names[1]
    assert "benchmarks/test_init_time.py::test_init_time[single_device-jax-mlp@data=1]" in names[0]


REFUSED = [
    (["--target", "native"], "--target native: JAX finds no accelerator on this host"),
    (["--target", "native", "--target", "cpu"], "one process times one target"),
    (["--size", "small", "--impl", "mine"], "--size small --impl mine: sizes are the book's"),
    (["--size", "huge"], "invalid choice: 'huge'"),
    (["--benchmark-min-rounds=50"], "--benchmark-min-rounds=50: benchmarks/ has its own number of rounds"),
    (["--min-mfu", "40"], "--min-mfu 40: expected a share from 0 to 1, such as 0.4"),
    (["--max-communication", "few"], "--max-communication few: expected a share from 0 to 1"),
    (["--trace-to", "pyproject.toml"], "--trace-to pyproject.toml: expected a folder, it is a file"),
    (["--benchmark-warmup", "off"], "--benchmark-warmup: benchmarks/ has its own number of rounds"),
]


def test_what_cannot_be_timed_is_an_error(tmp_path):
    """No accelerator, two targets, a size that is nobody's, options without effect: an error that says so, no skip."""
    collected = collect(tmp_path, NO_BACKEND, *(arguments for arguments, _ in REFUSED))
    assert collected.returncode == pytest.ExitCode.USAGE_ERROR
    said = collected.stderr.split(EACH)[1:]
    assert [message for (_, message), each in zip(REFUSED, said, strict=True) if message not in each] == [], said
    assert "collected" not in collected.stdout
