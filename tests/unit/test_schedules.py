"""Pipeline schedules as data: complete, possible, and as idle as the formula says."""

import warnings
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshproof.contract import Slot
from meshproof.measures.pipeline_schedules import count
from reference_impl.theory.schedules import (
    forward_only,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)
from suites.test_bubble_is_that_of_the_schedule import expected_bubble

STAGES, MICROBATCHES, CHUNKS = st.integers(1, 8), st.integers(1, 24), st.integers(1, 4)


def quietly(make, *counts):
    """A schedule, whether or not its stages are starved."""
    with warnings.catch_warnings(action="ignore"):
        return make(*counts)


@st.composite
def schedules(draw):
    """Any schedule of the book, with S, M and V."""
    stages, chunks = draw(STAGES), draw(CHUNKS)
    make = draw(st.sampled_from([gpipe, one_forward_one_backward, zero_bubble, interleaved]))
    if make is interleaved:
        groups = draw(st.integers(1, 4))
        return quietly(make, stages, groups * stages, chunks), stages, groups * stages, chunks
    microbatches = draw(MICROBATCHES)
    return quietly(make, stages, microbatches), stages, microbatches, 1


@given(schedules())
def test_everything_is_done_once(drawn):
    """Each microbatch passes each chunk of each stage once each way, with zero bubble once for the weights; and a stage
    does one thing a tick.
    """
    schedule, stages, microbatches, chunks = drawn
    works = Counter((s.stage, s.microbatch, s.direction, s.chunk) for s in schedule.slots)
    assert len(works) == stages * microbatches * chunks * (2 + schedule.has_weights) and set(works.values()) == {1}
    assert set(Counter((s.tick, s.stage) for s in schedule.slots).values()) == {1}
    assert (schedule.stages, schedule.microbatches, schedule.chunks) == (stages, microbatches, chunks)


@given(schedules())
def test_everything_comes_after_what_it_needs(drawn):
    """Forward comes after the chunk before, backward after the chunk behind and its own forward, weights after that."""
    schedule, stages, _, chunks = drawn
    tick = {(s.direction, s.microbatch, s.chunk * stages + s.stage): s.tick for s in schedule.slots}
    for (direction, microbatch, depth), now in tick.items():
        if direction == "forward" and depth:
            assert tick["forward", microbatch, depth - 1] < now
        if direction == "backward":
            assert tick["forward", microbatch, depth] < now
            assert depth == stages * chunks - 1 or tick["backward", microbatch, depth + 1] < now
        if direction == "weights":
            assert tick["backward", microbatch, depth] < now


@given(schedules())
def test_bubble_is_the_formula(drawn):
    """The share of idle slots is (S − 1)/(V·M + S − 1), of 2·(V·M + S − 1) ticks; a forward pass takes half.

    With zero bubble it is (S − 1)/(3M + S − 1); where M < S, stages wait for the first backward longer than that.
    """
    schedule, stages, microbatches, chunks = drawn
    counts = count(schedule.slots)
    ticks, share = 2 * (chunks * microbatches + stages - 1), (stages - 1, chunks * microbatches + stages - 1)
    if schedule.has_weights:
        ticks = max(3 * microbatches + stages - 1, 2 * microbatches + 2 * stages - 1)
        share = (ticks - 3 * microbatches, ticks)
    assert counts.bubble == Fraction(*share) == expected_bubble(counts)
    assert schedule.bubble == pytest.approx(float(counts.bubble), abs=1e-12)
    assert schedule.ticks == counts.ticks == ticks
    forwards = quietly(forward_only, stages, microbatches, chunks)
    assert forwards.ticks == forwards.hops == chunks * microbatches + stages - 1


@given(STAGES, MICROBATCHES)
def test_live_activations_are_counted(stages, microbatches):
    """GPipe holds M activations on every stage, 1F1B S − s on stage s, or M where there are fewer."""
    all_first, soon = quietly(gpipe, stages, microbatches), quietly(one_forward_one_backward, stages, microbatches)
    assert all_first.live == (microbatches,) * stages
    assert soon.live == tuple(min(stages - stage, microbatches) for stage in range(stages))
    assert max(soon.live) == count(soon.slots).live <= stages


@given(STAGES, MICROBATCHES)
def test_weights_hold_what_they_need(stages, microbatches):
    """With zero bubble S activations, or M, are live until their weights."""
    schedule = quietly(zero_bubble, stages, microbatches)
    assert max(schedule.live) == count(schedule.slots).live == min(stages, microbatches)


@given(schedules())
def test_hops_are_once_a_tick(drawn):
    """As often as ticks; where a stage is handed two things at once, once more in the ticks that go both ways."""
    schedule, *_ = drawn
    steady = schedule.phases[1]
    assert schedule.hops == count(schedule.slots).ticks + count(schedule.slots).crossed
    assert count(schedule.slots).crossed == schedule.crosses(steady) * len(steady)


def test_what_crosses():
    """With zero bubble, 4 stages and 8 microbatches, stage 1 is handed F5 and B3 in one tick; 1F1B never does so."""
    schedule = zero_bubble(4, 8)
    assert {(s.tick, s.stage, s.direction, s.microbatch) for s in schedule.slots} >= {
        (12, 0, "forward", 5),
        (12, 2, "backward", 3),
    }
    assert (schedule.ticks, schedule.hops) == (27, 27 + 18)
    assert one_forward_one_backward(4, 8).hops == 22


@given(schedules())
def test_phases_are_what_they_are_called(drawn):
    """Warm-up has forwards only, cool-down has none, and the three phases are all ticks in order."""
    schedule, *_ = drawn
    warm_up, steady, cool_down = schedule.phases
    assert [*warm_up, *steady, *cool_down] == list(range(schedule.ticks))
    assert {s.direction for s in schedule.slots if s.tick in warm_up} == {"forward"}
    assert "forward" not in {s.direction for s in schedule.slots if s.tick in cool_down}


def test_at_eight_microbatches_on_four_stages_half_is_held():
    """At M=8, S=4 the bubble is 3/11, and 1F1B holds half of what GPipe holds."""
    all_first, soon = gpipe(4, 8), one_forward_one_backward(4, 8)
    assert count(all_first.slots).bubble == count(soon.slots).bubble == 1 - Fraction(8, 11)
    assert 2 * max(soon.live) == max(all_first.live)


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 27), (8, 63)])
def test_ninety_percent_takes_nine_microbatches_for_each_further_stage(stages, microbatches):
    """27 microbatches keep 4 stages busy 90 % of the time, 63 keep 8 so; one less does not."""
    assert gpipe(stages, microbatches).efficiency == 0.9
    assert gpipe(stages, microbatches - 1).efficiency < 0.9


@pytest.mark.parametrize("make", [gpipe, one_forward_one_backward])
def test_starved_stages_are_warned_of(make):
    """Fewer microbatches than stages raise a warning that names both, and the efficiency; as many do not."""
    with pytest.warns(UserWarning, match="2 microbatches keep 4 stages busy 40% of the time; 27 would do so for 90%"):
        make(4, 2)
    with warnings.catch_warnings(action="error"):
        make(4, 4)


@pytest.mark.parametrize("counts", [(0, 8, 1), (4, 0, 1), (4, 8, 0)])
def test_nothing_is_no_schedule(counts):
    """Less than one stage, microbatch or chunk is an error that names all three."""
    stages, microbatches, chunks = counts
    with pytest.raises(ValueError, match=f"{microbatches} microbatches on {stages} stages of {chunks} chunks"):
        interleaved(*counts)


def test_microbatches_are_interleaved_in_whole_groups():
    """Microbatches that come in no whole number of groups of S are an error that names both."""
    with pytest.raises(ValueError, match="6 microbatches are no whole number of groups of 4"):
        interleaved(4, 6, 2)


def test_a_drawing_is_the_schedule():
    """Rows are stages, columns are ticks; a chunk is a letter where there are several."""
    assert gpipe(2, 2).drawing() == "stage 0  F0 F1 ·  ·  B1 B0\nstage 1  ·  F0 F1 B1 B0 ·"
    assert interleaved(1, 1, 2).drawing() == "stage 0  F0a F0b B0b B0a"


def test_instruments_refuse_an_empty_schedule():
    """A schedule without slots is an error, and one in which nothing comes back is no early freeing."""
    with pytest.raises(ValueError, match="no slots"):
        count([])
    assert count([Slot(0, 0, 0, "forward")]).drains_first
