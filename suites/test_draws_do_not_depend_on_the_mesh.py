"""One device's dropout is everybody's: masks belong to elements, not to devices."""

import pytest

from meshproof.measures.numerics import agree

from .applicability import both, distributed, on_one_device
from .twins import agree_steps


def key(case):
    """What the same training under several strategies shares."""
    strategy = case.strategy
    return strategy.framework, strategy.model, getattr(strategy, "variant", ""), case.target


@pytest.mark.clause("NUM-9", applies=both(distributed, lambda case: getattr(case.strategy, "draws", False)))
def test_draws_do_not_depend_on_the_mesh(case, cases, observation, observe_also, truth, judge):
    """Dropout and other random draws MUST NOT depend on the mesh: gradients and every step agree with one device's."""
    judge.needs(case, "optimizer_state", "parameters")
    alone = [other for other in cases if on_one_device(other) and key(other) == key(case)]
    twin = judge.promised(alone[0] if alone else None, "form on one device to compare with")
    other, names = observe_also(twin), (twin.id, case.id)
    gradients = judge.see(other.gradients), judge.see(observation.gradients)
    steps = judge.see(other.run).steps, judge.see(observation.run).steps
    judge.numbers([agree(*gradients, truth.rounding.gradients, "gradients of step 1", names)])
    judge.numbers(agree_steps(*steps, truth.rounding.steps, names))
