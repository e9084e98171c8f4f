"""What could run behind a collective is read from the order of the text, of either compiler."""

import re

import pytest

from meshproof.hlo import HloError, census
from meshproof.hlo.schedule import Flight, Overlap, flights, overlap
from tests.unit.hlo.texts import ADD, MESH, STORED, counted, module, stored

DATA = {"data": 8}


def scheduled(entry: str, computations: str = ADD) -> str:
    """A scheduled module of this entry."""
    return module(entry, computations, "is_scheduled=true, num_partitions=8")


def moved_behind(text: str, line: str, before: str) -> str:
    """The text with the line that matches moved to just before another one."""
    [taken] = re.findall(f"^.*{line}.*\\n", text, re.MULTILINE)
    [place] = re.findall(f"^.*{before}.*\\n", text, re.MULTILINE)
    return text.replace(taken, "").replace(place, taken + place)


@pytest.mark.parametrize("name", STORED)
def test_every_collective_of_the_census_is_there(name: str) -> None:
    """Bytes on the wire are those of the census, up to the rounding of each instruction; unknown where those are."""
    mesh = counted(name).mesh
    sent = [entry.wire_bytes for entry in census(stored(name), mesh)]
    seen = overlap(flights(stored(name), mesh)).bytes
    assert (seen is None) == (None in sent)
    if seen is not None:
        assert abs(seen - sum(each or 0 for each in sent)) <= len(sent)


def test_gpu_hides_what_stands_between_start_and_done() -> None:
    """In a real step two products of 256 × 512 × 2048 / 8 run behind the all-reduce, and none behind its gathers."""
    text = stored("gpu-0.10.2-two_layers")
    (hidden,) = (flight for flight in flights(text, DATA) if flight.is_hidden)
    assert (hidden.operation, hidden.wire_bytes, hidden.is_asynchronous) == ("all-reduce", 14_343, True)
    assert (hidden.work.products, hidden.work.flops) == (2, 2 * 2 * 32 * 512 * 2048)
    seen = overlap(flights(text, DATA))
    assert (seen.bytes, seen.hidden) == (14_697_991, 14_343)
    assert seen.exposed == {"forward": 7_341_824, "backward": 7_341_824}


def test_tpu_chains_of_fusions_are_followed() -> None:
    """A gather that is printed in its start, beside a product and in its done has this product behind it."""
    (hidden,) = (flight for flight in flights(stored("tpu-0.12.0.1-two_layers"), DATA) if flight.is_hidden)
    assert (hidden.operation, hidden.wire_bytes, hidden.work.products) == ("all-gather", 2_097_152 * 7 // 8, 1)
    assert hidden.work.flops == 2 * 32 * 512 * 2048
    (hidden,) = (flight for flight in flights(stored("tpu-0.12.0.1-scanned_layers"), MESH) if flight.is_hidden)
    assert (hidden.executions, hidden.wire_bytes) == (6, 262_144)


def test_cpu_hides_nothing() -> None:
    """XLA:CPU has no start of its own for anything that moves."""
    assert overlap(flights(stored("cpu-0.12.0.1-two_layers"), DATA)).share == 0.0


def test_gpu_start_moved_next_to_its_done_hides_nothing() -> None:
    """The same real step, in which the start waits until its done, has nothing behind that all-reduce."""
    text = stored("gpu-0.10.2-two_layers")
    start, done = r"%all-reduce-start\S* = ", r"%all-reduce-done\S* = "
    late = flights(moved_behind(text, start, done), DATA)
    assert [flight.is_asynchronous for flight in late] == [flight.is_asynchronous for flight in flights(text, DATA)]
    assert overlap(late).hidden == 0


PERMUTE = """%p = f32[64]{0} parameter(0)
    %m = f32[8,8]{1,0} bitcast(%p)
    %start = (f32[64]{0}, f32[64]{0}) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,4}}
    %product = f32[8,8]{1,0} convolution(%m, %m), dim_labels=bf_io->bf
    %n = f32[64]{0} negate(%p)
    ROOT %done = f32[64]{0} collective-permute-done(%start)"""


def only(text: str) -> Flight:
    """The one collective of a module."""
    (flight,) = flights(text, MESH)
    return flight


def test_tpu_start_moved_next_to_its_done_hides_nothing() -> None:
    """A permute that starts where it is waited for has nothing behind it; before, a product and 512 other bytes."""
    work = only(scheduled(PERMUTE)).work
    assert (work.products, work.flops, work.bytes) == (1, 2 * 8 * 8 * 8, 512)
    late = only(moved_behind(scheduled(PERMUTE), "%start = ", "%done = "))
    assert (late.is_asynchronous, late.is_hidden, late.wire_bytes) == (True, False, 256)


def test_products_in_loops_between_count_as_often_as_they_run() -> None:
    """A loop of three trips between start and done runs three products there."""
    loop = """
%body (s: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %s = (s32[], f32[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8,8]{1,0} get-tuple-element(%s), index=1
  %y = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[8,8]{1,0}) tuple(%i, %y)
}

%condition (s: (s32[], f32[8,8])) -> pred[] {
  %s = (s32[], f32[8,8]{1,0}) parameter(0)
  ROOT %c = pred[] custom-call(%s), custom_call_target="x"
}
"""
    known = 'backend_config={"known_trip_count":{"n":"3"}}'
    runs = f"""%i = s32[] constant(0)
    %t = (s32[], f32[8,8]{{1,0}}) tuple(%i, %m)
    %w = (s32[], f32[8,8]{{1,0}}) while(%t), condition=%condition, body=%body, {known}"""
    text = scheduled(PERMUTE.replace("%product = f32[8,8]{1,0} convolution(%m, %m), dim_labels=bf_io->bf", runs), loop)
    assert only(text).work.products == 3
    assert only(text).work.flops == 3 * 2 * 8**3
    unknown = only(text.replace(known, ""))
    assert (unknown.work.products, unknown.is_hidden) == (None, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (module(PERMUTE), "is_scheduled=true is not in the module's header"),
        (scheduled(PERMUTE.replace("collective-permute-done(%start)", "copy(%n)")), "with 0 dones"),
    ],
    ids=["no schedule", "no done"],
)
def test_no_schedule_is_refused(text: str, problem: str) -> None:
    """Text whose order means nothing, and a start that is not waited for, are errors: nothing is called hidden."""
    with pytest.raises(HloError, match=problem):
        flights(text, MESH)


def test_a_program_that_moves_nothing_exposes_nothing() -> None:
    """Of nothing, all is hidden; of an unknown number of executions, no share is known."""
    assert overlap([]) == Overlap(0, 0, {}, 0)
    assert overlap([]).share == 1.0
    assert overlap(flights(stored("gpu-0.12.0.1-loops"), MESH)).share is None
