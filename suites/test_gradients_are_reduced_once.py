"""Once: not left out, not twice, not over another axis."""

import pytest

from meshproof.measures.traffic import compare_traffic

from .applicability import axes_of, data_parallel, reduces
from .derived import REDUCTIONS, theory

SCALARS = 64
"""Bytes of a step's or a microbatch's metrics: sixteen float32 numbers."""


@pytest.mark.clause("COM-2", applies=reduces)
def test_gradients_are_reduced_once(case, observation, judge):
    """Every gradient byte MUST be reduced exactly once, or once a microbatch, over the data axis, and over every axis
    that splits examples or their tokens but not the parameter in use; besides it only scalar metrics."""
    budget = judge.promised(case.contract.step, "communication budget of the train step")
    axes = {line.axes for line in budget if line.payload == "gradients"}
    seen = judge.see(judge.see(observation.step).collectives)
    reductions = [t for t in compare_traffic(seen, budget) if t.lane[0] in REDUCTIONS and t.lane[1] in axes]
    judge.traffic("step", (traffic for traffic in reductions if not traffic.exact))
    useful = {axis for part in ("batch", "parameters", "computed") for axis in axes_of(case, part)}
    judge.clear(stray(case, budget, useful))
    for line in budget:
        if line.payload == "metrics":
            allowed = SCALARS * case.contract.microbatches
            judge.at_most(f"budget: {line}", line.bytes, allowed, "bytes", f"theory: scalars, {SCALARS} bytes of them")
    judge.measured(list(theory(case, observation, judge).reductions()))


def stray(case, budget, useful):
    """Lines of a budget that are no gradient's way: between devices that do the same, or of data parallelism."""
    open_parts = None in (case.contract.batch, case.contract.parameters)
    for line in budget:
        idle = set(line.axes) - useful
        if line.payload == "gradients" and idle and not open_parts:
            yield f"budget: {line}; but {'×'.join(sorted(idle))} splits neither examples nor a parameter"
        if line.payload not in ("gradients", "metrics") and data_parallel(case):
            yield f"budget: {line}; but where every device has the whole model, only gradients and metrics need move"
