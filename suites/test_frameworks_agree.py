"""One strategy, several frameworks: the same numbers."""

import pytest

from .twins import agree_steps


def key(case):
    """What two forms of one strategy share."""
    strategy = case.strategy
    return strategy.name, strategy.model, getattr(strategy, "variant", ""), case.mesh, case.target


@pytest.mark.clause("NUM-8", applies=lambda case: case.strategy.framework != "jax")
def test_frameworks_agree(case, cases, observation, observe_also, truth, judge):
    """Plain JAX, NNX and Linen forms of one strategy MUST agree at every step."""
    judge.needs(case, "optimizer_state", "parameters")
    twins = [other for other in cases if other.strategy.framework == "jax" and key(other) == key(case)]
    twin = judge.promised(twins[0] if twins else None, "plain JAX form of this strategy to compare with")
    own, other = judge.see(observation.run), judge.see(observe_also(twin).run)
    judge.numbers(agree_steps(other.steps, own.steps, truth.rounding.steps, (twin.id, case.id)))
