"""A layout says where values are, not which."""

import pytest

from meshproof.cases import has_member
from meshproof.contract import leaves
from meshproof.measures.initial_values import are_same, wrong_draws

from .applicability import distributed, on_one_device


def alike(case, cases):
    """The same model and framework on one device; the case itself where it has to bring that."""
    own = case.strategy
    if has_member(own, "single_device") or not has_member(own, "truth"):
        return [case]
    names = own.framework, own.model, case.target
    return [
        other
        for other in cases
        if on_one_device(other) and (other.strategy.framework, other.strategy.model, other.target) == names
    ]


def shapes(case):
    """Of the canonical parameters, by path."""
    return {path: value.shape for path, value in leaves(case.strategy.truth.initial_parameters())}


@pytest.mark.clause("NUM-12", applies=distributed, among=alike)
def test_initial_values_equal_those_of_one_device(case, cases, observation, observe_also, judge):
    """The parameters that ``init`` makes MUST equal those that it makes on one device, from the same key. (Or, where a
    layout draws from another stream, be of the same mean and spread, with no two shards alike.)"""
    seen = judge.see(observation.initialisation.parameters)
    if alike(case, cases) == [case]:
        alone = judge.see(observation.initialisation.alone)
    else:
        found = [other for other in alike(case, cases) if shapes(other) == shapes(case)]
        twin = judge.counterpart(found[0] if found else None, "form on one device")
        alone = judge.see(observe_also(twin).initialisation.parameters)
    layout = judge.see(observation.initialisation.layouts.parameters)
    judge.clear(f"after init: {problem}" for problem in wrong_draws(seen, alone, layout))
    others = [path for path, expected in alone.items() if not are_same(seen[path], expected)]
    if others:
        judge.note(
            f"{len(others)} of {len(alone)} leaves are drawn from another stream than on one device: {others[0]}"
        )
