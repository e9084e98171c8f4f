"""``python -m reference_impl.train`` in a process of its own: what it says, and how it ends."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_stack

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "reference_impl.train"]


@pytest.fixture
def environment():
    """No number of devices but what the command chooses."""
    unset = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"JAX_PLATFORMS": "cpu", "COLUMNS": "200"}


def run(environment, *arguments, code=0, **options):
    """What the command says."""
    options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": 120} | options
    done = subprocess.run([*COMMAND, *map(str, arguments)], **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_promised_command_learns_and_shows_its_shardings(environment, tmp_path):
    """FSDP of the language model on eight devices: each array's spec, and a loss that falls."""
    losses = tmp_path / "losses.json"
    said = run(
        environment,
        *["--strategy", "fsdp", "--mesh", "data=8", "--model", "gpt", "--steps", "20", "--visualize", "--losses"],
        losses,
    )
    assert "fsdp (jax) on data=8: gpt, " in said
    assert re.search(r"float32 +\(64, 256\) +P\('data', None\) +\(8, 256\) +parameters/block_0/linear_1/kernel", said)
    assert "tokens/s" in said
    measured = json.loads(losses.read_text(encoding="utf-8"))
    assert len(measured["losses"]) == len(measured["seconds"]) == 20
    assert measured["losses"][-1] < measured["losses"][0] - 0.5


def test_sigterm_saves_and_resume_continues(environment, tmp_path):
    """The exit code is 128 + 15; what was saved last is where the next process begins."""
    command = [
        *COMMAND,
        *["--strategy", "data_parallel", "--mesh", "data=2", "--steps", "100000", "--save-every", "5", "--checkpoints"],
    ]
    command += [tmp_path / "run", "--losses", tmp_path / "l.json"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 90
        while not list((tmp_path / "run").glob("step_??????")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, said
    [step] = re.findall(r"stopped by SIGTERM: step (\d+) is saved; --resume continues", said)
    assert len(json.loads((tmp_path / "l.json").read_text(encoding="utf-8"))["losses"]) == int(step)
    said = run(
        environment,
        *["--strategy", "data_parallel", "--mesh", "data=2", "--resume", "--steps"],
        int(step) + 2,
        "--checkpoints",
        tmp_path / "run",
    )
    assert f"steps {step} to {int(step) + 2}" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--strategy fdsp", "unknown strategy 'fdsp'"),
        ("--strategy data_parallel --mesh data=3", "is not divisible by data=3"),
        ("--strategy fsdp --resume", "--resume needs --checkpoints"),
        ("--strategy data_parallel --mesh data=100000", "--mesh is of 100,000 devices: expected at most 2,048"),
    ],
)
def test_bad_input_is_one_line(environment, arguments, message):
    """Exit code 2, and no traceback."""
    said = run(environment, *arguments.split(), code=2)
    assert message in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_a_checkpoint_that_a_full_disk_does_not_take_ends_the_run(environment, tmp_path):
    """In one line, with its step and exit code 1; nothing that looks like a checkpoint stays."""
    full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))  # noqa: E731
    words = ["--strategy", "fsdp", "--mesh", "data=8", "--steps", "5000", "--save-every", "2", "--checkpoints"]
    said = run(environment, *words, tmp_path / "run", code=1, preexec_fn=full)
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert re.match(r"error: step 2 is not saved, nor was one before: .*step_000002 was not saved: .*too large", error)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


def test_a_mesh_of_other_devices_than_there_are_is_named(environment):
    """With both numbers."""
    said = run(environment | {"JAX_NUM_CPU_DEVICES": "4"}, *["--strategy", "fsdp", "--mesh", "data=8"], code=2)
    assert "--mesh is of 8 devices, JAX has 4" in said
