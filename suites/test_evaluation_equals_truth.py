"""Sums and counts to the very end: a mean of means weighs the examples of a short batch more."""

import pytest

from meshproof.cases import has_member
from meshproof.contract import nest
from meshproof.measures.numerics import judge_loss


@pytest.mark.clause("MSK-1", applies=lambda case: has_member(case.strategy, "evaluate"))
def test_evaluation_equals_truth(observation, evaluation_of, judge):
    """An evaluation set whose last batch is short, and so padded, masked and uneven across devices, MUST give the loss
    of the examples alone, and exactly their accuracy."""
    seen = judge.see(observation.evaluation)
    parameters = nest(judge.see(observation.run).steps[-1].parameters)
    true = evaluation_of(parameters)
    judge.clear(
        f"{name}: counted over {count} examples, the evaluation set has {true.count}"
        for name, (_, count) in seen.items()
        if count != true.count
    )
    if true.doubtful:
        judge.fail([f"{true.doubtful} of {true.count} examples are too near to two classes to be judged"])
    source = f"truth, of {true.count} examples"
    judge.equal("counted as correct", seen["correct"][0], true.correct, "examples", source)
    judge.numbers([judge_loss(seen["loss"][0], true.loss, true.deviation, "summed loss")])
