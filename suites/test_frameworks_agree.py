"""One strategy, several frameworks: the same numbers."""

import pytest

from meshproof.measures.numerics import VACUOUS_IN

from .twins import agree_steps, needs_one_start


def key(case):
    """Equal for the forms of one strategy."""
    strategy = case.strategy
    return strategy.name, strategy.model, getattr(strategy, "variant", ""), case.mesh, case.target


@pytest.mark.clause("NUM-8", applies=lambda case: case.strategy.framework != "jax")
def test_frameworks_agree(case, cases, observation, observe_also, truth, judge):
    """The plain JAX, NNX and Linen forms of one strategy MUST agree on loss, optimizer state and parameters at every
    step."""
    judge.needs(case, "optimizer_state", "parameters")
    twins = [other for other in cases if other.strategy.framework == "jax" and key(other) == key(case)]
    twin = judge.counterpart(twins[0] if twins else None, "plain JAX form of this strategy")
    seen = observe_also(twin)
    needs_one_start((case, observation), (twin, seen), judge)
    own, other = judge.see(observation.training.steps), judge.see(seen.training.steps)
    vacuous = VACUOUS_IN[case.contract.compute_dtype]
    judge.numbers(agree_steps(other, own, truth, (twin.id, case.id), vacuous))
