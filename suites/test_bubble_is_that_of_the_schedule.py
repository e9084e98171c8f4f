"""A pipeline's schedule: complete, possible, and with no more idle slots than the formula says."""

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

from meshproof.measures.pipeline_schedules import count

from .applicability import pipelined


@pytest.mark.clause("PIP-1", applies=pipelined)
def test_bubble_is_that_of_the_schedule(case, judge):
    """The bubble share, counted from the schedule, MUST equal (S − 1)/(V·M + S − 1). (M microbatches, S stages of V
    chunks. If weight gradients have slots of their own: (S − 1)/(3·V·M + S − 1), or (2S − 1 − M)/(2S − 1 + 2M) for M <
    S.)"""
    counts = count(case.strategy.schedule)
    expected = expected_bubble(counts)
    if counts.bubble != expected:
        slots = f"{counts.idle} of {counts.stages} × {counts.ticks} slots are idle"
        theory = f"theory: S={counts.stages}, V={counts.chunks}, M={counts.microbatches}"
        theory += ", weights in slots of their own" if counts.has_weights else ""
        judge.fail([f"bubble: expected {expected}, saw {counts.bubble}: {slots}; {theory}"])


@pytest.mark.clause("PIP-1", applies=pipelined)
def test_schedule_does_everything_once(case, judge):
    """The schedule MUST take every microbatch exactly once forward and once backward through every chunk of every
    stage. (Once more for weight gradients, if they have slots of their own. One thing per stage and tick, each after
    what it needs.)"""
    schedule, counts = case.strategy.schedule, count(case.strategy.schedule)
    depths = counts.chunks * counts.stages
    ticks = {(slot.direction, slot.microbatch, slot.chunk * counts.stages + slot.stage): slot.tick for slot in schedule}
    directions = ("forward", "backward", "weights") if counts.has_weights else ("forward", "backward")
    everything = set(product(directions, range(counts.microbatches), range(depths)))
    judge.clear(f"{named(*work)}: expected once, it is missing" for work in everything - ticks.keys())
    if len(schedule) != len(everything):
        judge.fail([f"slots: expected {len(everything)}, saw {len(schedule)}: something is done twice"])
    judge.clear(
        f"stage {stage} in tick {tick}: expected one slot, saw {times}"
        for (tick, stage), times in Counter((slot.tick, slot.stage) for slot in schedule).items()
        if times > 1
    )
    judge.clear(
        f"{named(*work)}: expected after tick {ticks[needed]}, which has the {named(*needed)}, saw it in tick {tick}"
        for work, tick in ticks.items()
        if (needed := input_of(*work, depths)) and ticks[needed] >= tick
    )


def expected_bubble(counts):
    """The formula of PIP-1: the idle share of all slots, those for weight gradients included if there are any."""
    idle, work = counts.stages - 1, counts.chunks * counts.microbatches
    if counts.has_weights:
        idle, work = max(idle, 2 * counts.stages - 1 - counts.microbatches), 3 * work
    return Fraction(idle, work + idle)


def input_of(direction, microbatch, depth, depths):
    """The work that must be done before: one chunk earlier forward, one later backward, the backward for weights."""
    if direction == "weights":
        return "backward", microbatch, depth
    if direction == "forward":
        return ("forward", microbatch, depth - 1) if depth else None
    return ("backward", microbatch, depth + 1) if depth < depths - 1 else ("forward", microbatch, depth)


def named(direction, microbatch, depth):
    """A piece of work, in a message."""
    return f"{direction} of microbatch {microbatch} at depth {depth}"
