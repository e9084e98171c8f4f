"""The deterministic fact that no noise hides."""

import pytest

from meshproof.traffic import compare_traffic


@pytest.mark.clause("COM-11")
def test_bytes_equal_theory(case, observation, judge):
    """Bytes moved MUST equal the theoretical bytes of the strategy, in the forward pass and in the train step: ratio
    1.000."""
    for what in ("forward", "step"):
        budget = judge.promised(getattr(case.contract, what), f"communication budget of the {what}")
        seen = compare_traffic(judge.see(judge.see(getattr(observation, what)).collectives), budget)
        for traffic in seen:
            judge.ratio(traffic.ratio)
        judge.traffic(what, (traffic for traffic in seen if not traffic.exact))
