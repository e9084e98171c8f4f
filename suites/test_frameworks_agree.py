"""One strategy, several frameworks: the same numbers."""

import pytest

from meshproof.numerics import agree, judge_loss


def key(case):
    """What two forms of one strategy share."""
    strategy = case.strategy
    return strategy.name, strategy.model, getattr(strategy, "variant", ""), case.mesh, case.target


@pytest.mark.clause("NUM-8", applies=lambda case: case.strategy.framework != "jax")
def test_frameworks_agree(case, cases, observation, observe_also, truth, judge):
    """Plain JAX, NNX and Linen forms of one strategy MUST agree at every step."""
    twins = [other for other in cases if other.strategy.framework == "jax" and key(other) == key(case)]
    twin = judge.promised(twins[0] if twins else None, "plain JAX form of this strategy to compare with")
    own, other = judge.see(observation.run), judge.see(observe_also(twin).run)
    names = (twin.id, case.id)
    for number, (left, right, rounding) in enumerate(
        zip(own.steps, other.steps, truth.rounding.steps, strict=True), start=1
    ):
        judge.numbers(
            [
                judge_loss(left.loss, right.loss, rounding.loss, f"loss of step {number}, against {twin.id}"),
                agree(
                    right.optimizer_state,
                    left.optimizer_state,
                    rounding.optimizer_state,
                    f"optimizer state after step {number}",
                    names,
                ),
                agree(right.parameters, left.parameters, rounding.parameters, f"parameters after step {number}", names),
            ]
        )
