"""Involuntary communication: what the compiler adds when shardings do not meet."""

import pytest

from .derived import lanes_of


def judge_program(what, case, observation, judge):
    """Every lane that moves bytes must have a line in the budget of this program."""
    budget = judge.budget(what)
    seen = lanes_of(case, judge.see(getattr(observation.programs, what).collectives), budget)
    judge.traffic(what, (traffic for traffic in seen if not traffic.lines))


@pytest.mark.clause("COM-10")
def test_nothing_else_moves(case, observation, judge):
    """The train step MUST NOT move anything that its budget does not list."""
    judge_program("step", case, observation, judge)


@pytest.mark.clause("COM-10")
def test_nothing_else_moves_forward(case, observation, judge):
    """The forward pass MUST NOT move anything that its budget does not list."""
    judge_program("forward", case, observation, judge)
