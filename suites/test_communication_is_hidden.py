"""Whether products can run while a collective is under way: by the compiler's schedule, which is no measurement."""

import pytest

from meshproof.hlo.schedule import overlap
from meshproof.targets import read_target

from .applicability import both, compiled_only, distributed


@pytest.mark.clause("COM-12", applies=both(compiled_only, distributed))
def test_communication_is_hidden(case, observation, judge):
    """The share of the train step's bytes on the wire with a product between start and done MUST NOT be below the
    contract's ``overlap``. (By the schedule of the target's compiler. Where the contract promises none, the share is
    only noted in the report.)"""
    seen = overlap(judge.see(observation.programs.step.flights))
    if seen.share is None or seen.bytes is None:
        judge.fail(["the bytes on the wire are unknown, expected a number: a loop's trip count is not in the program"])
    bandwidth = read_target(case.target).chip.link_bandwidth
    told = [f"{seen.hidden:,} of {seen.bytes:,} bytes on the wire have a product behind them: {seen.share:.3f}"]
    told += [
        f"exposed in phase {phase}: {size:,} bytes, {size / bandwidth:.2g} s on links of {bandwidth:.3g} bytes/s"
        for phase, size in seen.exposed.items()
        if size
    ]
    if case.contract.overlap is not None and seen.share < case.contract.overlap:
        judge.fail([f"expected a share of {case.contract.overlap} or more; {told[0]}", *told[1:]])
    judge.note("; ".join(told))
