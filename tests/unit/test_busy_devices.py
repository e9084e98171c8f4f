"""Where a trace says for how long a device was busy, a slow host excuses nothing, and a slow device is seen."""

import re

import pytest

from meshproof.timing.baselines import promote, read_baseline
from meshproof.timing.comparison import compare
from meshproof.timing.runs import Benchmark, RunError
from meshproof.timing.summary import write_comparisons
from tests.timings import entry, save

A = "test_toy.py::test_time[a]"
STEPS = {"steps_per_window": 10}


def test_a_busy_host_slows_no_busy_device():
    """Where the device worked all the time, witnesses of the host excuse nothing; where it waited, they do."""

    def outcome(busy):
        measured = {"device_seconds": busy}
        old, new = (
            Benchmark.parse(entry(A, 0.1 * factor, seed=1, witness=0.01 * factor, measured=measured, identity=STEPS))
            for factor in (1, 1.3)
        )
        return compare([old], new).outcome

    assert (outcome(0.013), outcome(0.005), outcome(None)) == ("slower", "cannot tell", "cannot tell")


def on_device(seconds, busy, seed=0):
    """A benchmark of ten calls a round, in each of which a device was so long busy."""
    return entry(A, seconds, seed=seed, identity=STEPS, measured={"device_seconds": busy})


@pytest.mark.parametrize(
    ("busy", "outcome"), [(0.0052, "slower"), (0.00405, "cannot tell"), (0.003, "cannot tell"), (None, "cannot tell")]
)
def test_a_device_that_is_busy_for_longer_is_slower(tmp_path, busy, outcome):
    """Where runs differ by the host so much that their times tell nothing, a trace of the device still tells."""
    made = [on_device(0.1, 0.004, 1), on_device(0.13, 0.00401, 2), on_device(0.16, 0.00399, 3)]
    runs = [save(tmp_path / f"{number}.json", each) for number, each in enumerate(made)]
    baseline = read_baseline(promote(runs, tmp_path / "baselines"))
    assert re.search(r"more than \d+\.\d\d× its time, or 1\.\d\d× that of a device", baseline.reach)
    [found] = baseline.compare({A: Benchmark.parse(on_device(0.12, busy, seed=4))})
    assert found.outcome == outcome and (found.on_device is None) == (busy is None)
    told = "a device was busy for 0.004 s of each call, is for 0.0052 s: 1.30× ["
    assert (told in str(found)) == (outcome == "slower")
    assert ("busy for 34% of it, and waits for the host: a larger --size" in str(found)) == (busy == 0.00405)
    lines = []
    write_comparisons([found], lines.append, "")
    assert ("on a device" in lines[0]) == (busy is not None)


def compared(old, new):
    """The outcome of a run against three others, and what is told of it."""
    runs = [Benchmark.parse(on_device(0.1, busy, seed)) for seed, busy in enumerate(old)]
    found = compare(runs, Benchmark.parse(on_device(0.1, new, seed=4)))
    return found.outcome, str(found)


def test_a_device_that_is_not_traced_any_more_is_told():
    """What the baseline could tell this run cannot; a baseline that knows it of one run alone knows nothing."""
    outcome, told = compared([0.004, 0.0041, 0.004], None)
    assert outcome == "cannot tell" and "no trace of this run says for how long a device was busy" in told
    assert compared([0.004, None, None], 0.008) == compared([None] * 3, 0.008)
    assert compared([0.004] * 3, 0.008)[0] == "slower"


@pytest.mark.parametrize("busy", [0, 0.0, -0.004, float("nan"), float("inf"), True, "0.004", [0.004]])
def test_seconds_that_are_none_are_refused(busy):
    """By their value, before anything is compared."""
    with pytest.raises(RunError, match=r"has device_seconds .*: expected seconds above 0, or null where none is known"):
        Benchmark.parse(on_device(0.1, busy))
