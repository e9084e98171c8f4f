"""Tensor parallelism pays per activation."""

import pytest

from meshproof.measures.traffic import compare_traffic

from .applicability import tensor_axes, tensor_parallel


@pytest.mark.clause("COM-5", applies=tensor_parallel)
def test_only_activations_move(case, observation, judge):
    """Over the tensor axis MUST move one [B, D] per block pair forward and one backward, and no parameter; in a
    pipeline in every tick, and the forward one again where the backward computes it anew."""
    for what, program in (("forward", observation.forward), ("step", observation.step)):
        budget = judge.promised(getattr(case.contract, what), f"communication budget of the {what}")
        tensor = tensor_axes(case)
        seen = compare_traffic(judge.see(judge.see(program).collectives), budget)
        judge.traffic(what, (traffic for traffic in seen if tensor & set(traffic.lane[1]) and not traffic.exact))
        moved = [line for line in budget if line.payload == "parameters" and tensor.intersection(line.axes)]
        judge.clear(f"{what}: parameters over the tensor axis; budget: {line}" for line in moved)
