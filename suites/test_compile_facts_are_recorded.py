"""Facts that two versions of the stack are compared by."""

import math

import pytest


@pytest.mark.clause("CMP-3")
def test_compile_facts_are_recorded(observation, judge):
    """The compile seconds and FLOPs of the train step MUST be recorded. (No seconds, if the program was
    compiled earlier and kept.)"""
    step = observation.programs.step
    for name, seen in (("compile seconds", step.compile_seconds), ("FLOPs", step.flops)):
        value = judge.see(seen)
        if value is not None and not (math.isfinite(value) and value > 0):
            judge.fail([f"{name} of the step: expected a positive number, saw {value}"])
