"""A mesh is a choice of the operator, not of the model."""

import pytest

from .twins import agree_steps


def key(case):
    """What the same training on several meshes of as many devices shares."""
    strategy = case.strategy
    names = strategy.name, strategy.framework, strategy.model, getattr(strategy, "variant", "")
    return *names, case.devices, case.target


def others(case, cases):
    """The same on other meshes."""
    own = key(case)
    return [other for other in cases if other.mesh != case.mesh and key(other) == own]


@pytest.mark.clause("SHD-7", among=others)
def test_meshes_agree(case, cases, observation, observe_also, truth, judge):
    """Meshes of as many devices and another shape MUST run the same model with no change but the mesh, and agree at
    every step."""
    judge.needs(case, "optimizer_state", "parameters")
    other = others(case, cases)[0]
    own, its = judge.see(observation.run), judge.see(observe_also(other).run)
    judge.numbers(agree_steps(its.steps, own.steps, truth.rounding.steps, (other.id, case.id)))
