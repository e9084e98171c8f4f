"""A step whose output lies otherwise than its input costs a resharding, or a compilation, every time."""

import pytest


@pytest.mark.clause("SHD-5")
def test_layout_does_not_change(case, observation, judge):
    """Layout MUST be unchanged after N steps, for every array of the state."""
    judge.see(observation.training.steps)
    judge.clear(f"{leaf} does not lie where it lay before training" for leaf in judge.see(observation.training.moved))
    for part in ("parameters", "optimizer_state"):
        if getattr(case.contract, part) is not None:
            judge.declared(judge.see(getattr(observation.training.layouts, part)), "after training")
