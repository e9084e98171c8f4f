"""The same train steps that the suites judge, timed: a window of K of them, and only where their numbers are right."""

import jax
import pytest
from cpuinfo import get_cpu_info

from benchmarks.window import STEPS, Window
from meshproof.compilations import compilations_of
from meshproof.environment import versions

ROUNDS = 10


@pytest.fixture(scope="module")
def expectations():
    """Truth, computed once for all cases that share it."""
    return {}


@pytest.fixture
def window(case, expectations):
    """The case on this machine's devices; skipped where it has too few."""
    backend = jax.default_backend()
    if case.target == "native" and backend == "cpu":
        pytest.skip("the host has no accelerator; --target cpu runs on virtual CPU devices")
    if case.devices > jax.device_count():
        pytest.skip(f"{case.id} needs {case.devices} devices, there are {jax.device_count()} ({backend})")
    with jax.default_matmul_precision("float32"):  # as the suites observe it: the time is of the step that is judged
        yield Window(case, expectations)


def test_step_time(case, window, benchmark):
    """The time of K train steps, each window from the same start and held to the truth before its time counts."""
    window.warm_up()
    with compilations_of() as window.events:
        benchmark.pedantic(window.run, setup=window.set_up, teardown=window.check, rounds=ROUNDS, iterations=1)
        if benchmark.disabled:
            window.check()
    device = jax.devices()[0]
    benchmark.extra_info |= {
        "identity": {
            "platform": device.platform,
            "device_kind": device.device_kind,
            "devices": jax.device_count(),
            "host": get_cpu_info().get("brand_raw") if device.platform == "cpu" else None,
            "dtype": "float32",
            "model": case.strategy.model,
            "matmul_precision": "float32",
            "steps_per_window": STEPS,
        },
        "facts": {},
        "stack": versions(),
        "judged_by": "truth" if window.expected else "the other windows",
    }
