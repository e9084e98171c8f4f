"""Timing happens in this process, and alone on the machine."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot be timed. Under xdist pytest-benchmark would run everything once and time nothing."""
    spread = hasattr(config, "workerinput") or config.getoption("dist", "no") != "no"
    if spread and not config.getoption("benchmark_disable"):
        raise pytest.UsageError(
            "benchmarks/ under pytest-xdist: nothing would be timed; run it without -n, or with --benchmark-disable"
        )
    if len(targets(config)) > 1:
        raise pytest.UsageError("--target cpu --target native: one process times one target; run once for each")


def targets(config: pytest.Config) -> set[str]:
    """What the options ask for."""
    return set(config.getoption("target") or ("cpu",))
