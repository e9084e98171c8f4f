"""Nothing in the step waits for the host, and nothing is widened behind one's back."""

import pytest

from meshproof.cases import has_member
from meshproof.contract import leaves


@pytest.mark.clause("CMP-2")
def test_step_stays_on_the_device(observation, judge):
    """No host transfer MUST happen inside the step: none that JAX makes unasked, of arrays that it is handed."""
    judge.clear(judge.see(observation.training.implicit_transfers))


@pytest.mark.clause("CMP-2")
def test_programs_hold_no_host_transfer(case, observation, judge):
    """No host transfer MUST be in the compiled step, nor in the forward pass where the strategy shows it."""
    judge.clear(judge.see(observation.programs.step.host_transfers))
    if has_member(case.strategy, "loss"):
        judge.clear(judge.see(observation.programs.forward.host_transfers))


@pytest.mark.clause("CMP-2")
def test_dtypes_are_not_promoted(observation, judge):
    """No implicit dtype promotion MUST happen in the gradients, and the step MUST keep every leaf's dtype."""
    judge.clear(judge.see(observation.gradients.promotions))
    before, steps = judge.see(observation.start.parameters), judge.see(observation.training.steps)
    first, last = dict(leaves(vars(steps[0]))), dict(leaves(vars(steps[-1])))
    first |= {f"parameters/{path}": value for path, value in before.items()}
    judge.clear(
        f"{path} was {value.dtype} and is {last[path].dtype} after {len(steps)} steps"
        for path, value in first.items()
        if path != "loss" and value.dtype != last[path].dtype
    )
