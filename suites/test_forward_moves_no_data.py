"""Data parallelism pays in the backward pass only."""

import pytest

from .applicability import both, data_parallel, distributed, takes_examples_together
from .derived import lanes_of


@pytest.mark.clause("COM-1", applies=both(distributed, data_parallel))
def test_forward_moves_no_data(case, observation, judge):
    """The forward pass of data parallelism MUST NOT communicate anything but scalar metrics. (And statistics of the
    batch, by their line of the budget, which COM-2 holds to the auxiliary state; activations that a loss compares with
    those of other examples, if the step reduce-scatters their gradients, as many bytes; and examples that it mixes with
    others, if the step moves as many bytes of them.)"""
    judge.budget("forward")
    together = takes_examples_together(case)
    allowed = [
        line
        for line in case.contract.forward
        if line.payload in ("metrics", "statistics") or (line.operation, line.axes, line.payload) in together
    ]
    seen = judge.see(observation.programs.forward.collectives)
    judge.traffic("forward", (traffic for traffic in lanes_of(case, seen, allowed) if not traffic.exact))
