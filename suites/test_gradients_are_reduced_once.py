"""Gradients are reduced once: not left out, not twice, not over another axis."""

import pytest

from meshproof.measures.traffic import compare_traffic

from .advice import NORMS, advised
from .applicability import axes_of, data_parallel, reduces
from .derived import REDUCTIONS, theory

SCALARS = 64
"""Bytes of a step's or a microbatch's metrics: sixteen float32 numbers."""


@pytest.mark.clause("COM-2", applies=reduces)
def test_gradients_are_reduced_once(case, observation, judge):
    """Every gradient byte MUST be reduced exactly once per step (or per microbatch) over every axis that splits the
    batch but not the parameter in use. (An axis splits the batch by examples or by their tokens. Over such an axis only
    scalar metrics are reduced besides, and norms of each parameter.)"""
    budget = judge.budget("step")
    axes = {line.axes for line in budget if line.payload == "gradients"}
    seen = judge.see(observation.programs.step.collectives)
    reductions = [t for t in compare_traffic(seen, budget) if t.lane[0] in REDUCTIONS and t.lane[1] in axes]
    judge.clear(advised("step", (traffic for traffic in reductions if not traffic.exact), observation))
    useful = {axis for part in ("batch", "parameters", "computed") for axis in axes_of(case, part)}
    judge.clear(stray(case, budget, useful))
    for line in budget:
        if line.payload == "metrics":
            leaves = len(judge.see(observation.start.layouts.parameters))
            allowed = SCALARS * case.contract.microbatches + NORMS * leaves
            source = f"scalars: {SCALARS} bytes per microbatch, and norms: {NORMS} for each of {leaves} parameters"
            judge.at_most("metrics in the budget", line.bytes, allowed, "bytes", f"{source}; budget: {line}")
    judge.clear(theory(case, observation, judge).reductions())


def stray(case, budget, useful):
    """Lines that no such budget may have: gradients between devices that do the same, or more than data parallelism."""
    open_parts = None in (case.contract.batch, case.contract.parameters)
    for line in budget:
        idle = set(line.axes) - useful
        if line.payload == "gradients" and idle and not open_parts:
            over = "×".join(sorted(idle))
            yield f"expected no gradients over {over}, which splits neither examples nor parameters; budget: {line}"
        if line.payload not in ("gradients", "metrics") and data_parallel(case):
            yield f"expected only gradients and metrics to move, as every device has the whole model; budget: {line}"
