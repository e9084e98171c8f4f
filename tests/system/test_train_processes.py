"""``meshproof launch -n 2 -- python -m reference_impl.train``: a run goes on over another number of processes."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from meshproof.launching.group import free_port
from tests.waiting import within

pytestmark = pytest.mark.any_stack

TRAIN = ["-m", "reference_impl.train", "--strategy", "data_parallel", "--mesh", "data=8", "--batch", "64"]


def train(processes, *words):
    """The losses of a run over so many processes, and what it said."""
    launch = ["-m", "meshproof", "launch", "-n", processes, "--timeout", 200, "--", sys.executable, *TRAIN]
    command = [sys.executable, *(launch if processes else TRAIN), *words]
    environment = {"JAX_PLATFORMS": "cpu", "COLUMNS": "200", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(words[-1].read_text(encoding="utf-8"))["losses"], done.stdout


@pytest.fixture
def whole(tmp_path):
    """The losses of one process that is not stopped."""
    return train(0, "--steps", 6, "--losses", tmp_path / "whole.json")[0]


def test_a_run_continues_on_more_processes_and_on_fewer(whole, tmp_path):
    """Two steps on 2, two on 4, two on 2: with the same examples, of which another batch would change the loss by a
    hundredth. (Not bit for bit: gloo adds in another order.)"""
    run, file = tmp_path / "run", tmp_path / "losses.json"
    for begin, processes in enumerate((2, 4, 2)):
        end = 2 * begin + 2
        resumed = ["--resume"] * bool(begin)
        losses, said = train(processes, "--steps", end, "--checkpoints", run, *resumed, "--losses", file)
        assert f"steps {2 * begin} to {end}" in said
        names = sorted(path.name for path in (run / f"step_{end:06}" / "data").iterdir())
        assert names == [f"process_{number}-of-{processes}.json" for number in range(processes)]
    assert len(losses) == len(whole) == 6
    np.testing.assert_allclose(losses, whole, rtol=1e-5)
    assert min(abs(np.diff(whole) / whole[1:])) > 1e-3


def test_sigterm_to_one_process_stops_all_after_the_same_step(tmp_path):
    """And that step is saved: a preemption tells one host first."""
    run, address = tmp_path / "run", {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    words = ["--steps", "5000", "--checkpoints", str(run), "--save-every", "2"]
    processes = [
        subprocess.Popen(
            [sys.executable, *TRAIN, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | address | {"JAX_PROCESS_ID": str(number), "JAX_PLATFORMS": "cpu", "COLUMNS": "200"},
        )
        for number in range(2)
    ]
    try:
        within(120, (run / "step_000002").exists)
        processes[1].send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [143, 143], said
    last = max(int(path.name.removeprefix("step_")) for path in run.iterdir() if path.name.startswith("step_"))
    assert 2 <= last < 5000 and f"stopped by SIGTERM: step {last} is saved; --resume continues" in said[0]
