"""A mesh is a choice of the operator, not of the model."""

from functools import cache

import pytest

from .twins import agree_steps, needs_one_start


@cache
def key(case):
    """Equal for the same training on several meshes of as many devices."""
    strategy = case.strategy
    names = strategy.name, strategy.framework, strategy.model, getattr(strategy, "variant", "")
    return *names, case.devices, case.target


def others(case, cases):
    """The same training on other meshes."""
    own = key(case)
    return [other for other in cases if other.mesh != case.mesh and key(other) == own]


@pytest.mark.clause("SHD-7", among=others)
def test_meshes_agree(case, cases, observation, observe_also, truth, judge):
    """One strategy on meshes of different shapes, but as many devices, MUST agree on loss, optimizer state and
    parameters at every step. (Only the mesh is changed.)"""
    judge.needs(case, "optimizer_state", "parameters")
    other = others(case, cases)[0]
    seen = observe_also(other)
    needs_one_start((case, observation), (other, seen), judge)
    own, its = judge.see(observation.training.steps), judge.see(seen.training.steps)
    judge.numbers(agree_steps(its, own, truth, (other.id, case.id)))
