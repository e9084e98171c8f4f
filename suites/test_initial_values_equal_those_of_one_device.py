"""A layout says where values are, not which."""

import pytest

from meshproof.cases import has_member
from meshproof.measures.initial_values import are_same, wrong_draws
from meshproof.measures.numerics import bitwise

from .applicability import both, distributed, on_one_device, on_the_cpu, unless
from .twins import shapes


def brings_one_device(case):
    """Whether it is compared with what it itself makes on one device, or has to bring that."""
    return has_member(case.strategy, "single_device") or not has_member(case.strategy, "truth")


def alike(case, cases):
    """The same model and framework on one device; the case itself where it has to bring that."""
    if brings_one_device(case):
        return [case]
    own = case.strategy
    names = own.framework, own.model, case.target
    return [
        other
        for other in cases
        if on_one_device(other) and (other.strategy.framework, other.strategy.model, other.target) == names
    ]


def drawn(case, cases, observation, observe_also, judge):
    """The parameters that ``init`` makes on the mesh, and those that it makes on one device."""
    seen = judge.see(observation.initialisation.parameters)
    if brings_one_device(case):
        return seen, judge.see(observation.initialisation.alone)
    found = [other for other in alike(case, cases) if shapes(other) == shapes(case)]
    twin = judge.counterpart(found[0] if found else None, "form on one device")
    return seen, judge.see(observe_also(twin).initialisation.parameters)


@pytest.mark.clause("NUM-12", applies=distributed, among=alike)
def test_initial_values_equal_those_of_one_device(case, cases, observation, observe_also, judge):
    """The parameters that ``init`` makes MUST equal those that it makes on one device, from the same key. (Or, where a
    layout draws from another stream, be of the same mean and spread, with no two shards alike.)"""
    seen, alone = drawn(case, cases, observation, observe_also, judge)
    layout = judge.see(observation.initialisation.layouts.parameters)
    judge.clear(f"after init: {problem}" for problem in wrong_draws(seen, alone, layout))
    others = [path for path, expected in alone.items() if not are_same(seen[path], expected)]
    if others:
        judge.note(
            f"{len(others)} of {len(alone)} leaves are drawn from another stream than on one device: {others[0]}"
        )


@pytest.mark.clause("NUM-12", applies=both(distributed, on_the_cpu, unless(brings_one_device)), among=alike)
def test_initial_values_of_one_stream_are_bitwise_equal(case, cases, observation, observe_also, judge):
    """Initial values that are drawn from the stream of one device MUST be bitwise those of one device. (On a CPU; an
    accelerator may round otherwise. Jit ``init`` on one device too: uncompiled, a product and a sum round twice. Not of
    what a strategy makes on one device itself: a draw may be compiled into one with what cuts a shard of it.)"""
    seen, alone = drawn(case, cases, observation, observe_also, judge)
    one = {path: value for path, value in alone.items() if path in seen and are_same(seen[path], value)}
    mesh = {path: seen[path] for path in one}
    judge.numbers([bitwise(one, mesh, "parameters after init", ("one device", "the mesh"))])
