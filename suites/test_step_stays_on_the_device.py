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
    strategy has one. Leaves that the contract's ``memory`` declares may come from other memory than the device's and
    go back there, and no array more.)"""
    programs = {"step": observation.programs.step}
    if has_member(case.strategy, "loss"):
        programs["forward pass"] = observation.programs.forward
    judge.clear(
        f"{name}: expected no host transfer, saw {transfer}"
        for name, program in programs.items()
        for transfer in judge.see(program.host_transfers)
    )
    elsewhere = count(case, observation, judge) if case.contract.memory else 0
    for name, program in programs.items():
        seen = judge.see(program.host_memory)
        places = {"arguments": (seen.arguments, elsewhere), "results": (seen.results, elsewhere)}
        places["copies to it"] = seen.copies, 2 * elsewhere
        judge.clear(
            f"{name}: expected {f'at most {most}' if most else 'none'} of the {what} in host memory, saw {number}: "
            f"every run moves them between host and device"
            for what, (number, most) in places.items()
            if number > most
        )


def count(case, observation, judge):
    """How many leaves of the state the contract declares in other memory than the device's own."""
    layouts = observation.start.layouts
    own = judge.see(layouts.memories)[0]
    parts = [part for part in ("parameters", "optimizer_state", "auxiliary") if has_member(case.strategy, part)]
    kinds = [case.contract.memory_kind(part, leaf.path) for part in parts for leaf in judge.see(getattr(layouts, part))]
    return sum(kind not in (None, own) for kind in kinds)


@pytest.mark.clause("CMP-2")
def test_dtypes_are_not_promoted(observation, judge):
    """The train step and its gradients MUST NOT promote any dtype implicitly. (Every leaf of the state keeps its
    dtype. A whole number or a truth value may take the dtype of the floats that it meets, and these that of complex
    numbers of their digits.)"""
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
