"""The step does not wait for the host, and no dtype is widened silently."""

import pytest

from meshproof.cases import has_member
from meshproof.contract import leaves


@pytest.mark.clause("CMP-2")
def test_step_stays_on_the_device(observation, judge):
    """The train step MUST NOT transfer any array between host and device implicitly."""
    judge.clear(
        f"expected no implicit transfer, saw {seen}" for seen in judge.see(observation.training.implicit_transfers)
    )


@pytest.mark.clause("CMP-2")
def test_programs_hold_no_host_transfer(case, observation, judge):
    """The compiled train step and forward pass MUST NOT contain a host transfer. (The forward pass only where the
    strategy has one.)"""
    programs = {"step": observation.programs.step}
    if has_member(case.strategy, "loss"):
        programs["forward pass"] = observation.programs.forward
    judge.clear(
        f"{name}: expected no host transfer, saw {transfer}"
        for name, program in programs.items()
        for transfer in judge.see(program.host_transfers)
    )


@pytest.mark.clause("CMP-2")
def test_dtypes_are_not_promoted(observation, judge):
    """The train step and its gradients MUST NOT promote any dtype implicitly. (Every leaf of the state keeps its
    dtype.)"""
    promotions = judge.see(observation.gradients.promotions)
    judge.clear(f"gradients: expected no implicit promotion, saw {seen}" for seen in promotions)
    before, steps = judge.see(observation.start.parameters), judge.see(observation.training.steps)
    first, last = dict(leaves(vars(steps[0]))), dict(leaves(vars(steps[-1])))
    first |= {f"parameters/{path}": value for path, value in before.items()}
    judge.clear(
        f"{path}: expected {value.dtype}, is {last[path].dtype} after {len(steps)} steps"
        for path, value in first.items()
        if path != "loss" and value.dtype != last[path].dtype
    )
