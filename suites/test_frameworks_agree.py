"""One strategy, several frameworks: the same numbers."""

import pytest

from suites.twins import agree_steps


def key(case):
    """What two forms of one strategy share."""
    strategy = case.strategy
    return strategy.name, strategy.model, getattr(strategy, "variant", ""), case.mesh, case.target


def plain_forms(case, cases):
    """The plain JAX form of a strategy in a framework."""
    if case.strategy.framework == "jax":
        return []
    return [other for other in cases if other.strategy.framework == "jax" and key(other) == key(case)]


@pytest.mark.clause("NUM-8", among=plain_forms)
def test_frameworks_agree(case, cases, observation, observe_also, truth, judge):
    """Plain JAX, NNX and Linen forms of one strategy MUST agree at every step."""
    twin = plain_forms(case, cases)[0]
    own, other = judge.see(observation.run), judge.see(observe_also(twin).run)
    judge.numbers(agree_steps(other.steps, own.steps, truth.rounding.steps, (twin.id, case.id)))
