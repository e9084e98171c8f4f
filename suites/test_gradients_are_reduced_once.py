"""Once: not left out, not twice, not over another axis."""

import pytest

from meshproof.traffic import compare_traffic
from suites.applicability import accumulates, data_axis, moves
from suites.derived import budgeted, bytes_in_use

REDUCTIONS = ("all-reduce", "reduce-scatter")


@pytest.mark.clause("COM-2", applies=moves("gradients"))
def test_gradients_are_reduced_once(case, observation, judge):
    """Every gradient byte MUST be reduced over the data axis exactly once; besides it only scalar metrics."""
    budget = judge.promised(case.contract.step, "communication budget of the train step")
    axes = {line.axes for line in budget if line.payload == "gradients"}
    seen = judge.see(judge.see(observation.step).collectives)
    reductions = [t for t in compare_traffic(seen, budget) if t.lane[0] in REDUCTIONS and t.lane[1] in axes]
    judge.traffic("step", (traffic for traffic in reductions if not traffic.exact))
    if data_axis(case) and not accumulates(case):  # how often those reduce, COM-9 judges
        reduced, lines = budgeted(case, "gradients", *REDUCTIONS)
        gradients = bytes_in_use(judge.see(judge.see(observation.before).parameters), case, "gradients")
        judge.equal("gradients in the budget itself", reduced, gradients, "bytes", f"those of the parameters; {lines}")
