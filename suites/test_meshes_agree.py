"""A mesh is a choice of the operator, not of the model."""

import pytest

from suites.agreement import verdicts


def key(case):
    """What the same training on several meshes of as many devices shares."""
    strategy = case.strategy
    names = strategy.name, strategy.framework, strategy.model, getattr(strategy, "variant", "")
    return *names, case.devices, case.target


@pytest.mark.clause("SHD-7", applies=lambda case: len(case.mesh) > 1)
def test_meshes_agree(case, cases, observation, observe_also, truth, judge):
    """Meshes of as many devices and another shape MUST run the same model with no change but the mesh, and agree at
    every step."""
    others = [other for other in cases if key(other) == key(case) and other.mesh != case.mesh]
    other = judge.promised(others[0] if others else None, "second mesh for this strategy")
    runs = judge.see(observation.run), judge.see(observe_also(other).run)
    for step in verdicts(case, runs[0], other, runs[1], truth.rounding):
        judge.numbers(step)
