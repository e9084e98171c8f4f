"""Metrics are sums and counts to the end: a mean of means gives the examples of a short batch more weight."""

from math import inf

import pytest

from meshproof.cases import has_member
from meshproof.measures.numerics import judge_loss

from .applicability import both, distributed, own_judge, unless


def evaluates(case):
    """The strategy evaluates."""
    return has_member(case.strategy, "evaluate")


@pytest.mark.clause("MSK-1", applies=both(evaluates, own_judge, distributed))
def test_evaluation_equals_one_device(observation, judge):
    """Evaluation with a short last batch MUST give the sums and the counts of one device. (In the state that training
    leaves, where a trainer's run on one device is its truth.)"""
    training = observation.training
    seen, (true, deviations) = judge.see(training.evaluation), judge.see(training.evaluation_alone)
    judge.clear(
        f"{name}: expected {true.get(name, (0, 'no'))[1]} examples as on one device, saw {count}"
        for name, (_, count) in seen.items()
        if count != true.get(name, (0, "no"))[1]
    )
    judge.numbers(
        judge_loss(seen[name][0], value, deviations[name], f"sum of {name}", vacuous=inf)
        for name, (value, _) in true.items()
    )


@pytest.mark.clause("MSK-1", applies=both(evaluates, unless(own_judge)))
def test_evaluation_equals_truth(observation, evaluation_of, judge):
    """Evaluation with a short last batch MUST give the loss and the accuracy of the valid examples alone. (That batch
    is padded, masked and uneven across devices. The loss is held to its bound, the accuracy to the example.)"""
    seen = judge.see(observation.training.evaluation)
    true = evaluation_of(judge.see(observation.training.steps)[-1])
    judge.clear(
        f"{name}: expected a count of {true.count}, saw {count}"
        for name, (_, count) in seen.items()
        if count != true.count
    )
    if true.doubtful:
        doubtful = f"rounding may change {true.doubtful} of {true.count} predictions; use other data"
        judge.fail([f"the accuracy cannot be judged exactly: {doubtful}"])
    judge.numbers([judge_loss(seen["loss"][0], true.loss, true.deviation, "summed loss")])
    source = f"truth, over {true.count}"
    judge.equal("counted as correct", seen["correct"][0], true.correct, "predictions", source)
