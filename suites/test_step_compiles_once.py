"""A step that compiles again is a fleet that waits."""

import pytest


@pytest.mark.clause("CMP-1")
def test_step_compiles_once(observation, judge):
    """After the first call of the train step nothing MUST be traced or compiled."""
    compilations = judge.see(observation.training.compilations)
    judge.clear(
        f"step {number} ran {', '.join(sorted(set(events)))} ({len(events)} events), allowed is none"
        for number, events in enumerate(compilations, start=1)
        if number > 1 and events
    )
