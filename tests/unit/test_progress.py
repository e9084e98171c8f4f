"""Before the first verdict a run says what it will do and what it is doing."""

import os
import time
from urllib.parse import quote

import pytest

from meshproof.run import progress
from meshproof.run.progress import COLD, OPERATION, START, WARM, SignOfLife, forecast
from tests.waiting import within

CASES = ("fsdp-jax-mlp@data=8", "zero1-jax-mlp@data=8")


def touch(folder, name):
    """A file of the observing process."""
    (folder / f"{quote(name, safe='')}").write_bytes(b"")


@pytest.fixture
def two_cores(monkeypatch):
    """A machine with two cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)


@pytest.mark.usefixtures("two_cores")
def test_forecast_counts_cases_and_cores():
    """More workers than cores are no faster; kept programs are."""
    cold, busy, warm = (forecast(100, 0, 3991, workers, warm) for workers, warm in ((2, False), (8, False), (2, True)))
    assert cold.startswith("100 cases are observed, then judged by 3,991 tests: about")
    assert f"about {(START + 100 * COLD / 2) / 60:.0f} min" in cold and "(2 of 2 cores" in cold
    assert busy.partition(" (")[0] == cold.partition(" (")[0]
    assert f"about {(START + 100 * WARM / 2) / 60:.0f} min" in warm and "programs are kept from earlier runs" in warm
    with_operations = forecast(100, 100, 3991, 2, False)
    assert f"about {(START + 50 * (COLD + OPERATION)) / 60:.0f} min" in with_operations
    assert forecast(1, 0, 40, 1, False).startswith("1 case is observed") and "no programs are kept" in cold
    assert forecast(2, 0, 40, 1, False, accelerated=True).startswith(
        "2 cases are observed, then judged by 40 tests (1 of 2"
    )


def test_sign_of_life_names_what_is_being_observed(tmp_path):
    """How many are done, which is under way, and for how long; nothing before the first is asked for."""
    written = []
    sign = SignOfLife(tmp_path, CASES, written.append, terminal=True)
    assert sign.line()[0] == "observed 0 of 2 cases; starting the observing processes"
    touch(tmp_path, f"{CASES[0]}.pickle.lock")
    assert sign.line()[0] == f"observed 0 of 2 cases; {CASES[0]} (0 s)"
    touch(tmp_path, f"{CASES[0]}.pickle")
    touch(tmp_path, f"{CASES[1]}.pickle.lock")
    assert sign.line()[0] == f"observed 1 of 2 cases; {CASES[1]} (0 s)"
    within(30, lambda: written)
    sign.stop()
    told = len(written)
    assert told > 1 and CASES[1] in "".join(written) and written[-1] == "\r\x1b[K"
    sign.stop()
    time.sleep(0.6)
    assert len(written) == told


def test_it_is_seen_while_a_test_is_captured(capfd, tmp_path):
    """Pytest turns file descriptor 1 elsewhere while a case is observed for a test."""
    write, shown = progress.standard_output(), os.dup(1)
    with (tmp_path / "captured").open("w") as captured:
        os.dup2(captured.fileno(), 1)
        write("observed 0 of 2 cases")
        os.dup2(shown, 1)
    assert capfd.readouterr().out == "observed 0 of 2 cases" and not (tmp_path / "captured").read_text()


def test_a_log_is_told_what_takes_long(tmp_path, monkeypatch):
    """Once for each silence, and only while a case is observed: who reads it must know a run that compiles from one
    that hangs."""
    monkeypatch.setattr(progress, "SILENCE", 0.6)
    written = []
    sign = SignOfLife(tmp_path, CASES, written.append, terminal=False)
    time.sleep(1)
    assert not written
    touch(tmp_path, f"{CASES[0]}.pickle.lock")
    sign.judged()
    time.sleep(0.4)
    assert not written
    within(30, lambda: len(written) > 1)
    sign.stop()
    assert written[0].startswith(f"\nobserved 0 of 2 cases; {CASES[0]} (") and written[0].endswith(" s)\n")
    assert "\x1b" not in "".join(written)
