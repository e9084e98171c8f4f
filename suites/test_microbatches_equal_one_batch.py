"""Accumulation is a way to save memory, and nothing else."""

import pytest

from meshproof.measures.numerics import VACUOUS_IN, agree
from meshproof.measures.trajectories import cancelled

from .applicability import accumulates
from .twins import agree_steps, unaccumulated


@pytest.mark.clause("ACC-1", applies=accumulates)
def test_microbatches_equal_one_batch(case, cases, observation, observe_also, truth, judge):
    """Training on k microbatches of b examples MUST equal training on one batch of k·b. (In the first gradients, and in
    loss, optimizer state and parameters after every step.)"""
    judge.needs(case, "optimizer_state", "parameters")
    twin = judge.counterpart(unaccumulated(case, cases), "form that takes the batch whole")
    how = (twin.id, case.id), VACUOUS_IN[case.contract.compute_dtype]
    other = observe_also(twin)
    gradients = judge.see(other.gradients.values), judge.see(observation.gradients.values)
    verdict = agree(*gradients, truth.rounding.gradients, "gradients of step 1", *how, cancelled(truth))
    steps = judge.see(other.training.steps), judge.see(observation.training.steps)
    judge.numbers([verdict, *agree_steps(*steps, truth, *how)])


@pytest.mark.clause("ACC-1", applies=accumulates)
def test_step_takes_its_batch_in_parts(case, cases, observation, observe_also, judge):
    """A step that accumulates over k microbatches MUST run at least k times the matrix products of a step that takes
    its batch whole."""
    twin = judge.counterpart(unaccumulated(case, cases), "form that takes the batch whole")
    own, once = (judge.see(seen.programs.step.products) for seen in (observation, observe_also(twin)))
    if not own or not once:
        judge.fail([f"matrix products: expected some in both steps, saw {own} here and {once} in {twin.id}"])
    expected = case.contract.microbatches * once
    if own < expected:
        judge.fail([f"matrix products: expected at least {expected:,}, saw {own:,}; {twin.id} runs {once:,}"])
