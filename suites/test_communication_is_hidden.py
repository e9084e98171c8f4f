"""Whether products can run while a collective is under way: by the compiler's schedule, which is no measurement."""

from collections import Counter

import pytest

from meshproof.hlo.schedule import overlap
from meshproof.observing.seen import NotSupported
from meshproof.targets import read_target

from .applicability import both, compiled_only, distributed


@pytest.mark.clause("COM-12", applies=both(compiled_only, distributed))
def test_communication_is_hidden(case, observation, judge):
    """The share of the train step's bytes on the wire with a product between start and done MUST NOT be below the
    contract's ``overlap``. (By the schedule of the target's compiler. Where the contract promises none, the share is
    only noted in the report.)"""
    flights = judge.see(observation.programs.step.flights)
    seen, target = overlap(flights), read_target(case.target)
    if seen.share is None or seen.bytes is None:
        unknown = (
            "the bytes on the wire are unknown, expected a number: how often a loop or a branch runs is in the data"
        )
        if case.contract.overlap is None:
            judge.see(NotSupported(unknown))
        judge.fail([unknown])
    seconds = Counter()
    for flight in flights:
        if not flight.is_hidden:
            sent = flight.wire_bytes * flight.executions
            seconds[flight.phase] += sent / target.bandwidth(flight.operation, flight.axes, case.mesh)
    told = [f"{seen.hidden:,} of {seen.bytes:,} bytes on the wire have a product behind them: {seen.share:.3f}"]
    told += [
        f"exposed in phase {phase}: {size:,} bytes, {seconds[phase]:.2g} s by the chip's published bandwidths"
        for phase, size in seen.exposed.items()
        if size
    ]
    if case.contract.overlap is not None and seen.share < case.contract.overlap:
        judge.fail([f"expected a share of {case.contract.overlap} or more; {told[0]}", *told[1:]])
    judge.note("; ".join(told))
