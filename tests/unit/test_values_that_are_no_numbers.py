"""What may be no number: an infinity from the start, and an element of a metric that has others. All else fails."""

from math import inf, nan

import numpy as np
import pytest

from meshproof.contract import Step, Trajectory
from meshproof.measures.numerics import finite, judge
from meshproof.observing.rounding import deviations
from meshproof.observing.state import infinite
from suites.metrics import comparable, judged

BEST = {"best": np.array([inf, 0.5, -inf])}


def test_an_infinity_that_was_there_from_the_start_is_finite_enough():
    """By path, place and sign; that of another leaf, or one that came later, is none."""
    assert finite(BEST, unreached=BEST).passed
    for began in ({}, {"other": BEST["best"]}, {"best": np.array([inf, 0.5, inf])}, {"best": np.zeros(3)}):
        assert not finite(BEST, unreached=began).passed
    assert not finite({"best": np.array([nan])}, unreached={"best": np.array([nan])}).passed


def test_only_leaves_of_floats_with_an_infinity_are_kept():
    """The others are left out."""
    held = [("best", BEST["best"]), ("mean", np.ones(2)), ("count", np.array(3)), ("lost", np.array([nan]))]
    assert list(infinite(held)) == ["best"]


def test_a_state_may_stay_at_an_infinity_and_nothing_else_may():
    """Its deviation is 0 where every draw has it, and it is then held to it exactly; a metric's is unknown."""

    def run(best, metric=1.0):
        return Trajectory({}, (Step(1.0, {}, {}, {"metric": np.float32(metric)}, {"best": np.float32(best)}),))

    [by] = deviations(run(inf, inf), [run(inf, inf)] * 4, devices=8).steps
    assert by.auxiliary["best"] == 0
    assert np.isnan(by.metrics["metric"])
    truth = {"best": np.array(inf)}
    assert judge({"best": np.float32(inf)}, truth, by.auxiliary).passed
    for seen in (-inf, nan, 1e38):
        assert not judge({"best": np.float32(seen)}, truth, by.auxiliary).passed
    assert not judge({"metric": np.float32(inf)}, {"metric": np.array(inf)}, by.metrics).passed
    [unlike] = deviations(run(inf), [run(inf), run(2.0)], devices=8).steps
    assert not judge({"best": np.float32(inf)}, truth, unlike.auxiliary).passed


@pytest.mark.parametrize(("value", "all_numbers"), [([nan, 0.5], True), ([nan, nan], False), (nan, False)])
def test_a_metric_may_lack_some_of_its_numbers(value, all_numbers):
    """Not all of them, and a scalar has one."""
    assert finite(judged({"metric": np.array(value)})).passed is all_numbers
    assert not finite(judged({"metric": np.array([inf, 0.5])})).passed


def test_what_a_metric_lacks_it_lacks_on_one_device_too():
    """In the same place."""
    seen, alone, rounding = ({"metric": np.array(value)} for value in ([nan, 0.5], [nan, 0.5], [nan, 1e-7]))
    assert judge(*comparable(seen, alone, rounding)[:3]).passed
    for other in ([0.5, nan], [0.0, 0.5]):
        assert not judge(*comparable({"metric": np.array(other)}, alone, rounding)[:3]).passed
