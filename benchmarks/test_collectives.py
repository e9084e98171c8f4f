"""The bandwidth of each collective in isolation, over all devices, from small to large."""

import jax
import pytest

from meshproof.observing.compilations import compilations_of

from .collectives import FORMULA, OPERATIONS, CollectiveWindow
from .host import accelerators
from .record import machine, stack
from .window import STEPS

KIB = 1024
SIZES = {"cpu": (4 * KIB, 64 * KIB, 1024 * KIB), "native": tuple(4**power * KIB for power in (1, 3, 5, 7, 8))}
"""Bytes, by target. Virtual devices share the host's memory, where larger sizes tell nothing new."""
ROUNDS = 10


def pytest_generate_tests(metafunc):
    """The target's sizes, each rounded down to float32 numbers that all devices share equally."""
    target = metafunc.config.getoption("target")[0]
    devices = metafunc.config.getoption("devices") if target == "cpu" else accelerators().count
    metafunc.parametrize("bytes_", [size - size % (4 * devices) for size in SIZES[target]], ids=shown)


def shown(size):
    """Bytes in a test id: in KiB if that is a whole number."""
    return f"{size}B" if size % KIB else f"{size // KIB}KiB"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_collectives(operation, bytes_, benchmark, size):
    """The time of K runs of one collective, its result compared with NumPy's."""
    if jax.device_count() < 2:
        pytest.skip("a collective needs 2 devices, there is 1")
    window = CollectiveWindow(operation, bytes_, jax.devices())
    known = {
        "identity": machine()
        | {"model": f"{operation}/{shown(bytes_)}", "dtype": "float32", "matmul_precision": "none"}
        | {"mesh": {"device": jax.device_count()}, "size": size, "steps_per_window": STEPS},
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
