"""What is to be float32 is not computed, or kept, in fewer digits without a word."""

import pytest

from meshproof.cases import has_member

BITS = {"float32": 32, "bfloat16": 16}
"""Of the compute dtypes that a contract declares."""


@pytest.mark.clause("MIX-2")
def test_nothing_is_narrower_than_declared(case, observation, judge):
    """The train step and the forward pass MUST NOT compute in a floating-point type narrower than the contract's
    ``compute_dtype``. (As they are written: a compiler that widens what is narrow hides it on one target alone.)"""
    programs = {"step": observation.programs.step}
    if has_member(case.strategy, "loss"):
        programs["forward pass"] = observation.programs.forward
    declared = case.contract.compute_dtype
    judge.clear(
        f"{name}: expected no type narrower than {declared}, saw {seen.name} in {seen.count:,} arrays, first in "
        f"{seen.first}; compute and keep it in {declared}, or declare compute_dtype where it is meant"
        for name, program in programs.items()
        for seen in judge.see(program.floats)
        if seen.bits < BITS[declared]
    )
