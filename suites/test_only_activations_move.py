"""Tensor parallelism pays per activation."""

import pytest

from .advice import advised
from .applicability import tensor_axes, tensor_parallel
from .derived import lanes_of


@pytest.mark.clause("COM-5", applies=tensor_parallel)
def test_only_activations_move(case, observation, judge):
    """For each pair of blocks, exactly one [B, D] activation MUST move over the tensor axis in the forward pass and one
    in the backward pass, and no parameter. (In a pipeline: per tick. With recomputation: the forward one twice.)"""
    for what, program in (("forward", observation.programs.forward), ("step", observation.programs.step)):
        budget = judge.budget(what)
        tensor = tensor_axes(case)
        seen = lanes_of(case, judge.see(program.collectives), budget)
        wrong = (traffic for traffic in seen if tensor & set(traffic.lane[1]) and not traffic.exact)
        judge.clear(advised(what, wrong, observation))
        moved = [line for line in budget if line.payload == "parameters" and tensor.intersection(line.axes)]
        judge.clear(f"{what}: expected no parameters over the tensor axis; budget: {line}" for line in moved)
