"""Benchmarks run in this process; nothing else should run on the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from meshproof.cases import REFERENCE, Case, has_member

from .fit import compile_fitting
from .floors import NOT_EXERCISED, Floors, read_share
from .host import HostError, accelerators
from .judges import Judges
from .program import Program
from .record import matmul_precision
from .sizes import ON_ACCELERATOR, ON_CPU, SIZES, size_of
from .timing import Asked

WITHOUT_EFFECT = tuple(f"--benchmark-{what}" for what in ("min-", "max-", "calibration-", "warmup"))
"""Options of pytest-benchmark that have no effect: `benchmark.pedantic` sets the rounds."""

FEWER = ("single_device", "data_parallel", "fsdp", "fsdp_tensor_parallel")
"""The strategies of size `tiny` that are timed in tests marked ``fewer``, each on its first model."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of what is timed."""
    group = parser.getgroup("benchmarks", "timing")
    group.addoption("--trace-to", metavar="DIR", help="keep there the trace of one window of each benchmark")
    group.addoption("--min-mfu", metavar="SHARE", help="fail a benchmark whose MFU is lower, such as 0.4")
    group.addoption(
        "--max-communication", metavar="SHARE", help="fail one in which a device only communicates for longer"
    )
    group.addoption("--size", choices=SIZES, help=f"default {ON_CPU}; on accelerators {ON_ACCELERATOR}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot be timed, and choose target and size; runs before devices and cases are chosen."""
    config.addinivalue_line("markers", "fewer: not of every case, where the cases are those of size tiny")
    spread = hasattr(config, "workerinput") or config.getoption("dist", "no") != "no"
    # Under xdist pytest-benchmark would run everything once and time nothing.
    if spread and not config.getoption("benchmark_disable"):
        raise pytest.UsageError(
            "benchmarks/ under pytest-xdist: nothing would be timed; run it without -n, or with --benchmark-disable"
        )
    if len(set(config.getoption("target") or ())) > 1:
        raise pytest.UsageError("--target cpu --target native: one process times one target; run once for each")
    if without := [word for word in config.invocation_params.args if word.startswith(WITHOUT_EFFECT)]:
        raise pytest.UsageError(f"{without[0]}: benchmarks/ has its own number of rounds, each warmed up; leave it out")
    asked_of(config)
    try:
        settle(config)
    except HostError as error:
        raise pytest.UsageError(str(error)) from error


def settle(config: pytest.Config) -> None:
    """The defaults: the host's accelerators if it has any, and a size that suits it."""
    size, implementation = config.getoption("size"), config.getoption("impl")
    if not config.getoption("target"):
        config.option.target = ["native" if accelerators().count else "cpu"]
    native = config.option.target == ["native"]
    if native and not accelerators().count:
        raise pytest.UsageError("--target native: JAX finds no accelerator on this host; --target cpu times its CPU")
    if size and implementation != REFERENCE:
        raise pytest.UsageError(f"--size {size} --impl {implementation}: sizes are the book's; leave out one of them")
    if implementation == REFERENCE:
        config.option.impl = SIZES[size or (ON_ACCELERATOR if native else ON_CPU)]


def pytest_report_header(config: pytest.Config) -> str:
    """The size and the target."""
    found = accelerators()
    on = f"{found.count} × {found.kind}" if native(config) else f"{config.getoption('devices')} virtual CPU devices"
    size = size_of(config.getoption("impl"))
    which = f"; beyond steps only {', '.join(FEWER)}" if size == ON_CPU else ""
    return f"benchmarks: --size {size} on {on}{'' if native(config) else f' ({found.kind})'}{which}"


def native(config: pytest.Config) -> bool:
    """Whether the target is ``native``."""
    return config.getoption("target") == ["native"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """At size tiny, keep only the first case of each strategy in `FEWER` for tests marked ``fewer``.

    The first in the implementation's order: pytest-randomly may have shuffled the tests.
    """
    if size_of(config.getoption("impl")) != ON_CPU:
        return
    seen: set[tuple[str, str]] = set()
    left_out = []
    fewer: list[Any] = [item for item in items if item.get_closest_marker("fewer")]
    for item in sorted(fewer, key=lambda item: item.callspec.indices["case"]):
        key = (item.function.__name__, item.callspec.params["case"].strategy.name)
        if key[1] not in FEWER or key in seen:
            left_out.append(item)
        seen.add(key)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def judges() -> Judges:
    """The judges of losses, each computed once."""
    return Judges()


@pytest.fixture
def size(pytestconfig: pytest.Config) -> str:
    """The name of the size that is timed."""
    return size_of(pytestconfig.getoption("impl"))


@pytest.fixture
def ready(case: Case) -> Iterator[Case]:
    """The case, skipped if this machine has too few devices."""
    if case.devices > jax.device_count():
        pytest.skip(f"{case.id} needs {case.devices} devices, there are {jax.device_count()}")
    precision = matmul_precision(case)
    with jax.default_matmul_precision(None if precision == "default" else precision):
        yield case


@pytest.fixture(scope="session")
def asked(pytestconfig: pytest.Config) -> Asked:
    """What is asked of windows beside their times."""
    return asked_of(pytestconfig)


def asked_of(config: pytest.Config) -> Asked:
    """The same, by the options. Raises ``pytest.UsageError`` for what is no share, and for a file where a folder is."""
    shares = {
        option: None if (text := config.getoption(option)) is None else read_share(option, text)
        for option in ("--min-mfu", "--max-communication")
    }
    folder = config.getoption("--trace-to")
    if folder and Path(folder).is_file():
        raise pytest.UsageError(f"--trace-to {folder}: expected a folder, it is a file")
    floors = Floors(shares["--min-mfu"], shares["--max-communication"])
    return Asked(Path(folder).absolute() if folder else None, floors)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one loud line what was asked for and could not be judged: a skip is no pass."""
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())]
    idle = [reason for reason in reasons if reason.startswith(NOT_EXERCISED)]
    if idle:
        told = f"NOT EXERCISED: {len(idle)} benchmarks, first {idle[0].removeprefix(NOT_EXERCISED)}"
        terminalreporter.write_line(told, yellow=True, bold=True)


@pytest.fixture(scope="session")
def compile_seconds() -> dict[str, float | None]:
    """The seconds of the first compilation of each case's step."""
    return {}


@pytest.fixture
def step(ready: Case, pytestconfig: pytest.Config, compile_seconds: dict[str, float | None]) -> Program | None:
    """The compiled step, before anything is run; an error if it does not fit on the devices."""
    if not has_member(ready.strategy, "shard_batch"):
        return None
    batch = ready.strategy.shard_batch(next(iter(ready.strategy.batches(1))))
    program = compile_fitting(ready, pytestconfig.getoption("impl"), batch)
    return program and replace(program, compile_seconds=compile_seconds.setdefault(ready.id, program.compile_seconds))
