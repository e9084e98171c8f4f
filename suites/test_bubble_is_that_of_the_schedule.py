"""A pipeline's schedule: complete, possible, and no idler than it must be."""

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

from meshproof.measures.pipeline_schedules import count

from .applicability import pipelined


@pytest.mark.clause("PIP-1", applies=pipelined)
def test_bubble_is_that_of_the_schedule(case, judge):
    """Bubble share, counted from the schedule, MUST equal (S − 1)/(V·M + S − 1) with M microbatches and S stages of V
    chunks; where weights have slots of their own (S − 1)/(3·V·M + S − 1), or (2S − 1 − M)/(2S − 1 + 2M) if M < S."""
    counts = count(case.strategy.schedule)
    expected = expected_bubble(counts)
    if counts.bubble != expected:
        slots = f"schedule: {counts.idle} of {counts.stages} × {counts.ticks} slots idle, a share of {counts.bubble}"
        theory = f"theory: S={counts.stages}, V={counts.chunks}, M={counts.microbatches}"
        theory += ", weights in slots of their own" if counts.has_weights else ""
        judge.measured([f"{slots} seen, {expected} allowed, margin {float(counts.bubble / expected):.3f}; {theory}"])


@pytest.mark.clause("PIP-1", applies=pipelined)
def test_schedule_does_everything_once(case, judge):
    """The schedule MUST take every microbatch once forward and once backward through every chunk of every stage, and
    where weights have slots of their own once more for those, one in a stage at a time, each after what it needs."""
    schedule, counts = case.strategy.schedule, count(case.strategy.schedule)
    depths = counts.chunks * counts.stages
    ticks = {(slot.direction, slot.microbatch, slot.chunk * counts.stages + slot.stage): slot.tick for slot in schedule}
    directions = ("forward", "backward", "weights") if counts.has_weights else ("forward", "backward")
    everything = set(product(directions, range(counts.microbatches), range(depths)))
    judge.clear(f"{named(*work)} is missing" for work in everything - ticks.keys())
    if len(schedule) != len(everything):
        judge.fail([f"{len(schedule)} slots, expected {len(everything)}: something is done twice"])
    judge.clear(
        f"stage {stage} has {times} slots in tick {tick}"
        for (tick, stage), times in Counter((slot.tick, slot.stage) for slot in schedule).items()
        if times > 1
    )
    judge.clear(
        f"{named(*work)} in tick {tick} does not come after {named(*needed)} in tick {ticks[needed]}"
        for work, tick in ticks.items()
        if (needed := input_of(*work, depths)) and ticks[needed] >= tick
    )


def expected_bubble(counts):
    """The share of idle slots: of forwards and backwards, or where weights have their own of those too."""
    idle, work = counts.stages - 1, counts.chunks * counts.microbatches
    if counts.has_weights:
        idle, work = max(idle, 2 * counts.stages - 1 - counts.microbatches), 3 * work
    return Fraction(idle, work + idle)


def input_of(direction, microbatch, depth, depths):
    """What must be done before: the same one chunk before, or after it going backward; its backward for the weights."""
    if direction == "weights":
        return "backward", microbatch, depth
    if direction == "forward":
        return ("forward", microbatch, depth - 1) if depth else None
    return ("backward", microbatch, depth + 1) if depth < depths - 1 else ("forward", microbatch, depth)


def named(direction, microbatch, depth):
    """A piece of work in words."""
    return f"{direction} of microbatch {microbatch} at depth {depth}"
