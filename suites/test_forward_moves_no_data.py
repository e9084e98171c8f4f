"""Data parallelism pays in the backward pass only."""

import pytest

from .applicability import both, compares_examples, data_parallel, distributed
from .derived import lanes_of


@pytest.mark.clause("COM-1", applies=both(distributed, data_parallel))
def test_forward_moves_no_data(case, observation, judge):
    """The forward pass of data parallelism MUST NOT communicate anything but scalar metrics. (And statistics of the
    batch, by their line of the budget, which COM-2 holds to the auxiliary state; and activations that a loss compares
    with those of other examples, if the step reduce-scatters their gradients, as many bytes.)"""
    judge.budget("forward")
    compared = [("all-gather", "activations", axes) for axes in compares_examples(case)]
    allowed = [
        line
        for line in case.contract.forward
        if line.payload in ("metrics", "statistics") or (line.operation, line.payload, line.axes) in compared
    ]
    seen = judge.see(observation.programs.forward.collectives)
    judge.traffic("forward", (traffic for traffic in lanes_of(case, seen, allowed) if not traffic.exact))
