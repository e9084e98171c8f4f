"""Dropout masks belong to elements of an array, not to devices."""

import pytest

from meshproof.measures.numerics import agree

from .applicability import both, distributed, on_one_device
from .twins import agree_steps


def key(case):
    """Equal for the same training under several strategies."""
    strategy = case.strategy
    return strategy.framework, strategy.model, getattr(strategy, "variant", ""), case.target


@pytest.mark.clause("NUM-9", applies=both(distributed, lambda case: getattr(case.strategy, "draws", False)))
def test_draws_do_not_depend_on_the_mesh(case, cases, observation, observe_also, truth, judge):
    """Random draws, such as dropout masks, MUST NOT depend on the mesh. (The first gradients and every step are
    compared with those of one device.)"""
    judge.needs(case, "optimizer_state", "parameters")
    alone = [other for other in cases if on_one_device(other) and key(other) == key(case)]
    twin = judge.counterpart(alone[0] if alone else None, "form on one device")
    other, names = observe_also(twin), (twin.id, case.id)
    gradients = judge.see(other.gradients.values), judge.see(observation.gradients.values)
    steps = judge.see(other.training.steps), judge.see(observation.training.steps)
    judge.numbers([agree(*gradients, truth.rounding.gradients, "gradients of step 1", names)])
    judge.numbers(agree_steps(*steps, truth.rounding.steps, names))
