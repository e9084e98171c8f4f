"""``python -m reference_impl.train`` in a process of its own: what it says, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "reference_impl.train"]


@pytest.fixture
def environment():
    """No number of devices but what the command chooses."""
    unset = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"JAX_PLATFORMS": "cpu", "COLUMNS": "200"}


def run(environment, *arguments, code=0):
    """What the command says."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
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
    with subprocess.Popen(
        [*command, tmp_path / "run"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 90
        while not list((tmp_path / "run").glob("step_??????")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, said
    [step] = re.findall(r"stopped by SIGTERM: step (\d+) is saved; --resume continues", said)
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
    ],
)
def test_bad_input_is_one_line(environment, arguments, message):
    """Exit code 2, and no traceback."""
    said = run(environment, *arguments.split(), code=2)
    assert message in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_a_mesh_of_other_devices_than_there_are_is_named(environment):
    """With both numbers."""
    said = run(environment | {"JAX_NUM_CPU_DEVICES": "4"}, *["--strategy", "fsdp", "--mesh", "data=8"], code=2)
    assert "--mesh is of 8 devices, JAX has 4" in said
