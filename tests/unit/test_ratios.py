"""What is said of two times: slower where it is, faster where it is, and never either of the same code."""

import math
import subprocess
import sys

import numpy as np
import pytest

from meshproof.timing.ratios import (
    ROUNDS,
    Ratio,
    Sample,
    SampleError,
    compare_pairs,
    compare_runs,
    median_interval,
    wandering,
)
from tests.timings import rounds

WITNESS = {"one core": [0.01] * 10}


def sample(seconds=0.1, seed=0, count=10, noise=0.01, witness=1.0):
    """A run on a machine that is ``witness`` times slower than another one."""
    return Sample(rounds(seconds, count, noise, seed), {"one core": [0.01 * witness] * count})


def drifting(generator, factor=1.0, count=40):
    """Two stacks that take turns on a machine that wanders by half, and stalls in every tenth round."""
    walk = np.exp(np.cumsum(0.05 * generator.standard_normal(2 * count)))
    stalls = np.where(generator.random(2 * count) < 0.1, 3.0, 1.0) * np.exp(0.05 * generator.standard_normal(2 * count))
    turns = 0.1 * walk * stalls
    is_new = np.tile([False, True, True, False], count // 2)
    return turns[~is_new].tolist(), (factor * turns[is_new]).tolist()


def walking(generator, factor=1.0, count=20):
    """One run on a machine that is up to half slower than at another time, and wanders: its witness wanders with it."""
    machine = math.exp(generator.uniform(-0.4, 0.4)) * np.exp(np.cumsum(0.02 * generator.standard_normal(count)))
    noise = np.exp(0.03 * generator.standard_normal((2, count)))
    return Sample((0.1 * factor * machine * noise[0]).tolist(), {"one core": (0.01 * machine * noise[1]).tolist()})


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Ratio(1.3, 1.2, 1.4), "slower"),
        (Ratio(0.8, 0.7, 0.9), "faster"),
        (Ratio(1.01, 0.98, 1.04), "same"),
        (Ratio(1.3, 0.9, 1.9), "cannot tell"),
        (Ratio(1.1, 1.04, 1.2), "cannot tell"),
        (Ratio(0.9, 0.85, 0.96), "cannot tell"),
    ],
)
def test_verdict_is_of_the_whole_interval(ratio, verdict):
    """An interval beyond the threshold is a verdict, one within it is none, one across it says nothing."""
    assert ratio.verdict() == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1.3, "slower"), (1 / 1.3, "faster"), (1.0, "same")])
def test_planted_change_is_called_by_its_name(factor, verdict):
    """On a quiet machine 1.3× is slower, its inverse faster, and the same code the same, in 20 of 20 runs."""
    for seed in range(20):
        old, new = sample(seed=2 * seed), sample(0.1 * factor, seed=2 * seed + 1)
        assert compare_runs([old], new).verdict() == verdict, seed


@pytest.mark.parametrize(("one", "other"), [("slower", "faster"), ("faster", "slower")])
def test_swapped_runs_swap_the_verdict(one, other):
    """Which run is the old one decides: a comparison that is inverted is not the same one."""
    fast, slow = sample(), sample(0.13, seed=1)
    old, new = (fast, slow) if one == "slower" else (slow, fast)
    assert compare_runs([old], new).verdict() == one
    assert compare_runs([new], old).verdict() == other
    assert compare_pairs(old.seconds, new.seconds).verdict() == one
    assert compare_pairs(new.seconds, old.seconds).verdict() == other


def test_drift_of_the_machine_is_no_verdict():
    """The same code on a machine that drifts by half between two runs is never called slower or faster."""
    generator = np.random.default_rng(0)
    verdicts = [compare_runs([walking(generator)], walking(generator)).verdict() for _ in range(200)]
    assert set(verdicts) <= {"same", "cannot tell"}
    blind = [
        compare_runs([Sample(old.seconds, {})], Sample(new.seconds, {})).verdict()
        for old, new in ((walking(generator), walking(generator)) for _ in range(50))
    ]
    assert {"slower", "faster"} <= set(blind), "without the witness the drift would have been called a change"


def test_witness_widens_to_its_side():
    """A machine that the witness saw 1.4 times slower takes so much from the lower end, and nothing from the upper."""
    steady, slowed = (compare_runs([sample()], sample(0.14, seed=1, witness=factor)) for factor in (1.0, 1.4))
    assert slowed.low == pytest.approx(steady.low / 1.4)
    assert slowed.high == pytest.approx(steady.high)
    assert (steady.verdict(), slowed.verdict()) == ("slower", "cannot tell")


def test_old_runs_show_what_the_witness_does_not_see():
    """A time is slower only where it is slower than every run of the baseline."""
    assert compare_runs([sample(), sample(0.1, seed=1)], sample(0.13, seed=2)).verdict() == "slower"
    assert compare_runs([sample(), sample(0.13, seed=1)], sample(0.13, seed=2)).verdict() == "cannot tell"


def processes(generator, runs, factor=1.0, benchmarks=20):
    """Runs of twenty benchmarks, each of which is a tenth faster or slower in each process, as on real machines."""
    between = 0.1 * np.exp(0.1 * generator.standard_normal((runs, benchmarks)))
    between[-1] *= factor
    return [[sample(seconds, seed) for seed, seconds in enumerate(run)] for run in between]


def judge(generator, factor=1.0, pooled=True):
    """The verdicts on a run of twenty benchmarks by three earlier ones."""
    *old, new = processes(generator, 4, factor)
    wander = wandering([{str(n): each.seconds for n, each in enumerate(run)} for run in old]) if pooled else 1.0
    return {compare_runs(were, now, wander).verdict() for *were, now in zip(*old, new, strict=True)}


def test_what_differs_between_processes_is_no_verdict():
    """What the runs of a baseline show of all benchmarks together is allowed to each: in 20 of 20 whole runs."""
    generator = np.random.default_rng(4)
    assert set().union(*(judge(generator) for _ in range(20))) <= {"same", "cannot tell"}
    assert all(judge(generator, 3) == {"slower"} and judge(generator, 1 / 3) == {"faster"} for _ in range(20))
    alone = [judge(generator, pooled=False) for _ in range(20)]
    assert sum(bool(verdicts & {"slower", "faster"}) for verdicts in alone) > 10, "each benchmark alone knew too little"


def test_one_more_run_wanders_no_further():
    """In 99.9 % of all cases none of the twenty benchmarks of one more run lies beyond; of one run nothing is known."""
    generator = np.random.default_rng(5)

    def beyond():
        *old, new = (np.array([np.median(each.seconds) for each in run]) for run in processes(generator, 4))
        allowed = wandering([{str(n): [seconds] for n, seconds in enumerate(run)} for run in old])
        return np.abs(np.log(new) - np.log(old).mean(axis=0)).max() > math.log(allowed)

    assert sum(beyond() for _ in range(2000)) <= 8
    assert wandering([{"a": [0.1]}]) == 1.0


def test_turns_cancel_a_drift():
    """Two stacks that take turns are told apart on a machine that drifts, and the same one never is, 200 times."""
    generator = np.random.default_rng(1)
    same = [compare_pairs(*drifting(generator)).verdict() for _ in range(200)]
    assert set(same) <= {"same", "cannot tell"}
    for factor, verdict in ((1.3, "slower"), (1 / 1.3, "faster")):
        found = [compare_pairs(*drifting(generator, factor)).verdict() for _ in range(50)]
        assert set(found) <= {verdict, "cannot tell"} and found.count(verdict) > 40, found


def test_interval_of_pairs_holds_the_ratio():
    """The interval of the median holds the true ratio in 99 % of all cases, whatever the noise."""
    generator = np.random.default_rng(2)
    ratios = [compare_pairs(*drifting(generator, 1.1)) for _ in range(1000)]
    assert sum(ratio.low <= 1.1 <= ratio.high for ratio in ratios) >= 980


def test_interval_of_a_median_holds_it():
    """Of skewed times too, and in their own unit: the true median lies within in 99 % of all cases."""
    generator = np.random.default_rng(3)
    intervals = [median_interval(generator.exponential(2.0, 20).tolist()) for _ in range(1000)]
    assert sum(low <= 2 * math.log(2) <= high for _, low, high in intervals) >= 980
    assert median_interval([3.0, 1.0, 2.0, 4.0, 8.0, 7.0, 6.0, 5.0]) == (4.5, 1.0, 8.0)


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (lambda: median_interval([0.1] * 7), "7 values; expected 8 or more"),
        (lambda: compare_runs([], sample()), "no old run"),
        (lambda: compare_runs([sample()], sample(count=ROUNDS - 1)), "7 rounds; expected 8 or more"),
        (lambda: compare_runs([sample()], Sample([0.0] * 10, WITNESS)), r"positive numbers of seconds; got 0\.0"),
        (lambda: compare_runs([sample()], Sample([math.nan] * 10, WITNESS)), "positive numbers"),
        (
            lambda: compare_runs([sample()], Sample(rounds(), {})),
            "the two runs differ: one core, and none",
        ),
        (lambda: compare_pairs([0.1] * 7, [0.1] * 7), "7 pairs of rounds; expected 8"),
        (lambda: compare_pairs([0.1] * 16, [0.1] * 14), "16 old and 14 new rounds"),
    ],
)
def test_too_little_is_no_ratio(compare, message):
    """Times of which nothing can be said are an error that says why."""
    with pytest.raises(SampleError, match=message):
        compare()


def test_comparing_needs_neither_jax_nor_pytest():
    """Times are compared where neither is installed."""
    lines = "import sys; import meshproof.timing.summary; print({'jax', 'pytest'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True).stdout == "set()\n"
