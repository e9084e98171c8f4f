"""Accumulation is a way to save memory, and nothing else."""

import pytest

from meshproof.numerics import VACUOUS_IN, agree
from suites.applicability import accumulates
from suites.twins import agree_steps, unaccumulated


@pytest.mark.clause("ACC-1", applies=accumulates)
def test_microbatches_equal_one_batch(case, cases, observation, observe_also, truth, judge):
    """k microbatches of b MUST equal one batch of k·b: the gradients, and loss, optimizer state and parameters after
    each step."""
    judge.needs(case, "optimizer_state", "parameters")
    twin = judge.promised(unaccumulated(case, cases), "form that takes the batch whole to compare with")
    how = (twin.id, case.id), VACUOUS_IN[case.contract.compute_dtype]
    other = observe_also(twin)
    gradients = judge.see(other.gradients), judge.see(observation.gradients)
    verdict = agree(*gradients, truth.rounding.gradients, "gradients of step 1", *how)
    steps = judge.see(other.run).steps, judge.see(observation.run).steps
    judge.numbers([verdict, *agree_steps(*steps, truth.rounding.steps, *how)])
