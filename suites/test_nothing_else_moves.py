"""Involuntary communication: what the compiler adds when shardings do not meet."""

import pytest

from meshproof.traffic import compare_traffic


@pytest.mark.clause("COM-10")
def test_nothing_else_moves(case, observation, judge):
    """Nothing MUST move that the budget does not list, in the forward pass and in the train step."""
    for what in ("forward", "step"):
        budget = judge.promised(getattr(case.contract, what), f"communication budget of the {what}")
        seen = compare_traffic(judge.see(judge.see(getattr(observation, what)).collectives), budget)
        judge.clear(f"{what}: {traffic}" for traffic in seen if not traffic.lines)
