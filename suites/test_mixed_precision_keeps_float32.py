"""What is computed in bfloat16 is off by as much as bfloat16 explains; what is kept loses nothing."""

import numpy as np
import pytest

from meshproof.contract import Trajectory, leaves
from meshproof.measures.numerics import VACUOUS_IN, judge_loss, judge_trajectory

from .applicability import mixed

LEAST = 2.0**-8
"""The share of its bound that a run in bfloat16 must use. Float32 uses 2⁻¹⁶ of what bfloat16 does; this is between."""


@pytest.mark.clause("MIX-1", applies=mixed)
def test_mixed_precision_stays_within_its_bound(case, observation, truth, judge):
    """bf16 compute MUST stay within the derived bf16 bound of truth, which MUST NOT exceed half of the signal, in the
    first gradients and in loss, optimizer state and parameters after each step; and MUST be bf16, not float32."""
    judge.needs(case, "optimizer_state", "parameters")
    vacuous, first = VACUOUS_IN[case.contract.compute_dtype], (truth.value.steps[0].loss, truth.rounding.steps[0].loss)
    forward = judge_loss(judge.see(observation.forward_loss), *first, "forward pass", vacuous)
    seen = Trajectory(judge.see(observation.gradients), judge.see(observation.run).steps)
    gradients, *rest = judge_trajectory(seen, truth, vacuous)
    judge.numbers([forward, gradients, *rest])
    if gradients.margin < LEAST:
        judge.fail(
            [f"no gradient uses more than {gradients.margin:.2g} of its bound: {case.contract.compute_dtype} would"]
        )


@pytest.mark.clause("MIX-1", applies=mixed)
def test_masters_are_float32(case, observation, judge):
    """Parameters, optimizer state, gradients and loss MUST be float32 at every step: by their dtype, and by digits that
    bf16 cannot hold."""
    judge.needs(case, "optimizer_state", "parameters")
    steps = judge.see(observation.run).steps
    kept = {"initial": judge.see(observation.initial), "gradients": judge.see(observation.gradients)}
    kept |= {
        f"step {n}": {"parameters": s.parameters, "state": s.optimizer_state} for n, s in enumerate(steps, start=1)
    }
    judge.clear(
        f"{path} is {value.dtype}, expected float32"
        for path, value in leaves(kept)
        if value.dtype.kind != "i" and value.dtype != np.float32
    )
    losses = {"loss": np.array([judge.see(observation.forward_loss), *(step.loss for step in steps)])}
    last = {"parameters": steps[-1].parameters, "state": steps[-1].optimizer_state}
    reduced = case.contract.explicit and case.contract.moves("gradients")
    digits = losses | last | ({"gradients": kept["gradients"]} if reduced else {})
    judge.clear(
        f"{path} has no digit that bfloat16 could not hold: it was rounded to bfloat16"
        for path, value in leaves(digits)
        if value.dtype.kind != "i" and held_in_bfloat16(value)
    )


def held_in_bfloat16(value):
    """Whether the upper half of a float32 holds every element: bfloat16 is no more than that."""
    return not (np.asarray(value, np.float32).view(np.uint32) & 0xFFFF).any()
