"""What accumulation must not cost."""

import pytest

from .applicability import accumulates, both, moves
from .derived import bytes_of
from .twins import unaccumulated


@pytest.mark.clause("COM-9", applies=both(accumulates, moves("gradients")))
def test_accumulation_reduces_once(case, cases, observation, observe_also, judge):
    """Gradient accumulation over k microbatches MUST reduce as many gradient bytes as a step without it (or k times as
    many, if its budget says so)."""
    twin = judge.counterpart(unaccumulated(case, cases), "form that takes the batch whole")
    seen, budgeted, lines = gradient_bytes(case, observation, judge)
    once, budgeted_once, _ = gradient_bytes(twin, observe_also(twin), judge)
    times = budgeted / budgeted_once
    judge.ratio(seen / (times * once))
    if times not in (1, case.contract.microbatches):
        expected = f"expected 1 or {case.contract.microbatches} times those of {twin.id}, saw {times:g} times"
        judge.fail([f"gradients reduced by the budget: {expected}; budget: {lines}"])
    source = f"{times:g} times what {twin.id} reduces; budget: {lines}"
    judge.equal("gradients reduced in a step", seen, int(times) * once, "bytes", source)


def gradient_bytes(case, observation, judge):
    """Bytes of gradients that a step reduces, seen and budgeted, and the budget's lines for them."""
    budget = judge.promised(case.contract.step, "communication budget of the train step")
    own = [line for line in budget if line.payload == "gradients"]
    seen = bytes_of(case, own, judge.see(observation.programs.step.collectives))
    return seen, sum(line.bytes for line in own), "; ".join(map(str, own))
