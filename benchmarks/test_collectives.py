"""What bandwidth do the collectives reach alone, over all devices, from small to large?"""

import jax
import pytest

from benchmarks.collectives import FORMULA, OPERATIONS, CollectiveWindow
from benchmarks.record import machine, stack
from benchmarks.window import STEPS
from meshproof.compilations import compilations_of

KIB = 1024
SIZES = {"cpu": (4 * KIB, 64 * KIB, 1024 * KIB), "native": tuple(4**power * KIB for power in (1, 3, 5, 7, 8))}
"""Bytes, by target; a virtual device's memory is the host's, and more of them say nothing new."""
ROUNDS = 10


def pytest_generate_tests(metafunc):
    """The sizes of the target."""
    target = metafunc.config.getoption("target")[0]
    metafunc.parametrize("bytes_", SIZES[target], ids=lambda size: f"{size // KIB}KiB")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_collectives(operation, bytes_, benchmark):
    """The time of K runs of one collective, held to NumPy's result."""
    if jax.device_count() < 2:
        pytest.skip("a collective needs 2 devices, there is 1")
    window = CollectiveWindow(operation, bytes_, jax.devices())
    known = {
        "identity": machine()
        | {"model": f"{operation}/{bytes_ // KIB}KiB", "dtype": "float32", "matmul_precision": "none"}
        | {"mesh": {"device": jax.device_count()}, "steps_per_window": STEPS},
        "facts": window.facts,
        "measured": {},
        "stack": stack(),
        "formulas": {"bandwidth": FORMULA},
        "judged_by": "NumPy",
    }
    window.run()
    window.check()
    with compilations_of() as window.events:
        benchmark.pedantic(window.run, teardown=window.check, rounds=ROUNDS, iterations=1)
    if not benchmark.disabled:
        known["measured"] = window.bandwidths(benchmark.stats.stats.median / STEPS)
    benchmark.extra_info |= known
