"""Accumulation is a way to save memory, and nothing else."""

import pytest

from meshproof.numerics import agree
from suites.applicability import accumulates
from suites.twins import agree_steps, unaccumulated


@pytest.mark.clause("ACC-1", applies=accumulates)
def test_microbatches_equal_one_batch(case, cases, observation, observe_also, truth, judge):
    """k microbatches of b MUST equal one batch of k·b: the gradients, and loss, optimizer state and parameters after
    each step."""
    twin = judge.promised(unaccumulated(case, cases), "form that takes the batch whole to compare with")
    names, other = (twin.id, case.id), observe_also(twin)
    one, many = judge.see(other.gradients), judge.see(observation.gradients)
    verdicts = [agree(one, many, truth.rounding.gradients, "gradients of step 1", names)]
    steps = judge.see(other.run).steps, judge.see(observation.run).steps
    judge.numbers([*verdicts, *agree_steps(*steps, truth.rounding.steps, names)])
