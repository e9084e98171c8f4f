"""The deterministic fact that no noise hides."""

import pytest

from .advice import advised
from .derived import lanes_of


def judge_program(what, case, observation, judge):
    """Whatever the budget of this program lists must move, to the byte; COM-10 judges what it does not list."""
    budget = judge.budget(what)
    seen = lanes_of(case, judge.see(getattr(observation.programs, what).collectives), budget)
    listed = [traffic for traffic in seen if traffic.lines]
    for traffic in listed:
        judge.ratio(traffic.ratio)
    judge.clear(advised(what, (traffic for traffic in listed if not traffic.exact), observation))
    lines = "; ".join(str(line) for line in budget if line.dtype)
    judge.clear(f"{what}: {traffic.mistyped}; budget: {lines}" for traffic in listed if traffic.mistyped)


@pytest.mark.clause("COM-11")
def test_bytes_equal_theory(case, observation, judge):
    """The train step MUST move exactly the theoretical bytes of everything that its budget lists (ratio 1.000). (In
    the dtype that a line names. What XLA:CPU widens for its collectives counts as what it was.)"""
    judge_program("step", case, observation, judge)


@pytest.mark.clause("COM-11")
def test_forward_bytes_equal_theory(case, observation, judge):
    """The forward pass MUST move exactly the theoretical bytes of everything that its budget lists (ratio 1.000)."""
    judge_program("forward", case, observation, judge)
