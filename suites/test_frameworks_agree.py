"""One strategy, several frameworks: the same numbers."""

import pytest

from suites.agreement import verdicts


def key(case):
    """What two forms of one strategy share."""
    strategy = case.strategy
    return strategy.name, strategy.model, getattr(strategy, "variant", ""), case.mesh, case.target


@pytest.mark.clause("NUM-8", applies=lambda case: case.strategy.framework != "jax")
def test_frameworks_agree(case, cases, observation, observe_also, truth, judge):
    """Plain JAX, NNX and Linen forms of one strategy MUST agree at every step."""
    twins = [other for other in cases if other.strategy.framework == "jax" and key(other) == key(case)]
    twin = judge.promised(twins[0] if twins else None, "plain JAX form of this strategy to compare with")
    runs = judge.see(observation.run), judge.see(observe_also(twin).run)
    for step in verdicts(case, runs[0], twin, runs[1], truth.rounding):
        judge.numbers(step)
