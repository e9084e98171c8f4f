"""Sums and counts to the very end: a mean of means weighs the examples of a short batch more."""

import pytest

from meshproof.cases import has_member
from meshproof.contract import nest
from meshproof.measures.numerics import judge_loss
from meshproof.observing.seen import NotSupported
from meshproof.observing.subject import STEPS
from meshproof.observing.training import evaluation_set


@pytest.mark.clause("MSK-1", applies=lambda case: has_member(case.strategy, "evaluate"))
def test_evaluation_equals_truth(case, observation, judge):
    """An evaluation set whose last batch is short, and so padded, masked and uneven across devices, MUST give the loss
    of the examples alone, and exactly their accuracy."""
    truth = getattr(case.strategy, "truth", None)
    if not has_member(truth, "evaluate"):
        judge.see(NotSupported("the strategy's truth has no evaluate"))
    seen = judge.see(observation.training.evaluation)
    parameters = nest(judge.see(observation.training.steps)[-1].parameters)
    true = truth.evaluate(parameters, evaluation_set(list(case.strategy.batches(STEPS))))
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
