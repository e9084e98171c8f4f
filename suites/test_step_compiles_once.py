"""A step that compiles again makes a whole fleet wait."""

import pytest


@pytest.mark.clause("CMP-1")
def test_step_compiles_once(case, observation, judge):
    """The train step MUST NOT trace or compile anything after its first call."""
    first, later = observation.training.compilations, observation.training.later.compilations
    compilations = judge.see(first) + judge.see(later)
    otherwise = [*judge.see(observation.training.moved), *judge.see(observation.training.retyped)]
    changed = (
        f"its state comes back otherwise: {otherwise[0]}{f'; and {len(otherwise) - 1} more' if otherwise[1:] else ''}"
        if otherwise
        else "the usual cause is an argument of another sharding, shape or dtype, or a new function in every step"
    )
    unjitted = "train_step has no lower(), so that it may not be jitted: hand over the jitted function"
    cause = changed if hasattr(case.strategy.train_step, "lower") else unjitted
    judge.clear(
        f"step {number}: expected no tracing and no compilation, saw {', '.join(sorted(set(events)))} "
        f"({len(events)} events); {cause}"
        for number, events in enumerate(compilations, start=1)
        if number > 1 and events
    )


@pytest.mark.clause("CMP-1")
def test_init_makes_what_a_step_returns(observation, judge):
    """Every array that ``init`` makes MUST have the dtype and shape that the train step returns: else the second step
    compiles again. (A weak type, which a Python number gives an array, is another one.)"""
    judge.see(observation.training.steps)
    judge.clear(
        f"after init, {problem}; name the dtype where it is made, as in jnp.full(shape, value, dtype)"
        for problem in judge.see(observation.training.made_otherwise)
    )
