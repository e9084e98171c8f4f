"""A pipeline's only traffic between stages: what one hands on to the next."""

import pytest

from meshproof.measures.pipeline_schedules import count
from meshproof.measures.traffic import compare_traffic

from .applicability import pipelined


@pytest.mark.clause("COM-8", applies=pipelined)
def test_activations_hop_one_stage_per_tick(case, observation, judge):
    """Activations MUST hop from stage to stage by one collective-permute a tick: with M microbatches and S stages of V
    chunks V·M + S − 1 times in the forward pass, and in the step once for each tick of the schedule; once each way in
    those from the first backward to the last forward, if a stage is there handed an activation and a gradient at once.
    No parameter MUST move between stages."""
    counts = count(case.strategy.schedule)
    forwards = counts.chunks * counts.microbatches + counts.stages - 1
    for what, expected in (("forward", forwards), ("step", counts.ticks + counts.crossed)):
        budget = judge.promised(getattr(case.contract, what), f"communication budget of the {what}")
        hops = {(line.operation, line.axes) for line in budget if line.operation == "collective-permute"}
        between = {axis for _, axes in hops for axis in axes}
        if not hops:
            judge.fail(
                [f"{what}: no line of the budget is a collective-permute; budget: {'; '.join(map(str, budget))}"]
            )
        seen = compare_traffic(judge.see(judge.see(getattr(observation, what)).collectives), budget)
        judge.traffic(what, (traffic for traffic in seen if traffic.lane in hops and not traffic.exact))
        judge.clear(
            f"{what}: collective-permute over {'×'.join(traffic.lane[1])} runs {executions} times, "
            f"expected {expected}, {ticks_of(what, counts)}; budget: {'; '.join(map(str, traffic.lines))}"
            for traffic in seen
            if traffic.lane in hops
            if (executions := [entry.executions for entry in traffic.entries]) != [expected]
        )
        allowed = ("activations", "gradients", "metrics")
        judge.traffic(
            what,
            (
                traffic
                for traffic in seen
                if between & set(traffic.lane[1])
                if not traffic.lines or any(line.payload not in allowed for line in traffic.lines)
            ),
        )


def ticks_of(what, counts):
    """The expected number, in words."""
    if what == "forward" or not counts.crossed:
        return "once a tick"
    return f"once in each of {counts.ticks} ticks, and once more, the other way, in {counts.crossed} of them"
