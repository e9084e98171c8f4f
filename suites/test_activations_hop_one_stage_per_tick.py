"""A pipeline's only traffic between stages: what one sends to the next."""

import pytest

from meshproof.measures.pipeline_schedules import count

from .applicability import pipelined
from .derived import lanes_of


@pytest.mark.clause("COM-8", applies=pipelined)
def test_activations_hop_one_stage_per_tick(case, observation, judge):
    """Activations MUST move from stage to stage by exactly one collective-permute per tick, and no parameter. (M
    microbatches, S stages of V chunks: V·M + S − 1 ticks in the forward pass. In the step, one per tick of the
    schedule; from the first backward to the last forward one each way, if a stage there receives an activation and a
    gradient in the same tick.)"""
    counts = count(case.strategy.schedule)
    forwards = counts.chunks * counts.microbatches + counts.stages - 1
    for what, expected in (("forward", forwards), ("step", counts.ticks + counts.crossed)):
        budget = judge.budget(what)
        hops = {(line.operation, line.axes) for line in budget if line.operation == "collective-permute"}
        between = {axis for _, axes in hops for axis in axes}
        if not hops:
            lines = "; ".join(map(str, budget)) or "no line"
            judge.fail([f"{what}: expected a collective-permute in the budget, saw none; budget: {lines}"])
        seen = lanes_of(case, judge.see(getattr(observation.programs, what).collectives), budget)
        judge.traffic(what, (traffic for traffic in seen if traffic.lane in hops and not traffic.exact))
        for traffic in seen:
            executions = [entry.executions for entry in traffic.entries]
            if traffic.lane in hops and (None in executions or sum(executions) != expected):
                over, lines = "×".join(traffic.lane[1]), "; ".join(map(str, traffic.lines))
                saw = " and ".join(map(str, executions)) or "none"
                runs = f"collective-permute over {over}: expected {expected} executions, saw {saw}"
                judge.fail([f"{what}: {runs}; {ticks_of(what, counts)}; budget: {lines}"])
        judge.traffic(what, (traffic for traffic in seen if between & set(traffic.lane[1]) and not traffic.lines))
        judge.clear(
            f"{what}: expected only activations, gradients and metrics between stages; budget: {line}"
            for line in budget
            if between & set(line.axes) and line.payload not in ("activations", "gradients", "metrics")
        )


def ticks_of(what, counts):
    """Why so many executions are expected."""
    if what == "forward" or not counts.crossed:
        return "one per tick"
    return f"one in each of {counts.ticks} ticks, and a second one, the other way, in {counts.crossed} of them"
