"""Accumulation is a way to save memory, and nothing else."""

import pytest

from meshproof.measures.numerics import VACUOUS_IN, agree
from meshproof.measures.verdicts import compared

from .applicability import accumulates
from .twins import agree_steps, unaccumulated


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


@pytest.mark.clause("ACC-1", applies=accumulates)
def test_step_takes_its_batch_in_parts(case, cases, observation, observe_also, judge):
    """A step that accumulates over k microbatches MUST run the products of the model k times, where one that takes its
    batch whole runs them once."""
    twin = judge.promised(unaccumulated(case, cases), "form that takes the batch whole to compare with")
    own, once = (judge.see(judge.see(seen.step).products) for seen in (observation, observe_also(twin)))
    if not own or not once:
        judge.fail([f"products: {own} in the step and {once} in that of {twin.id}; expected two numbers above 0"])
    expected = case.contract.microbatches * once
    if own < expected:
        judge.measured([f"products of the step: {compared(own, expected, 'products')}; {twin.id} runs {once}"])
