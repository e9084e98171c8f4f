"""Programs of two versions: what JAX makes more of, and what takes much longer, is a line with its class."""

import copy

import pytest

from meshproof.comparison.comparing import compare
from meshproof.observing.seen import Failed
from meshproof.operations.growing import GrowingProgram
from meshproof.operations.growing.measuring import COMPILED, COMPILING, TRACING, measure
from meshproof.operations.growing.observing import ProgramSeen
from meshproof.operations.growing.table import layer, written_out
from meshproof.operations.recording import program_entry
from meshproof.report.document import write_report
from tests.reports import new_report

NAME = "program-p@operations"


def entry(*, deep=1254, wide=318, times=(3.0, 9.0, 3.0), problem=None):
    """A program at three sizes."""
    counts = ((6, 16, 318), (24, 16, deep), (6, 64, wide))
    sizes = [
        {"depth": depth, "width": width, "counts": {COMPILED: count}, "times": {TRACING: time}}
        for (depth, width, count), time in zip(counts, times, strict=True)
    ]
    return {"id": NAME, "problem": problem, "sizes": [] if problem else sizes}


def compared(old, new):
    """What a comparison says of programs, and its verdict."""
    reports = [copy.deepcopy(new_report()) | {"programs": entries} for entries in (old, new)]
    comparison = compare(*reports)
    return [each for each in comparison.differences if each.kind == "growth"], comparison.outcome


@pytest.mark.parametrize(
    ("new", "change", "place", "said"),
    [
        (entry(deep=1600), "regressed", COMPILED, "71.2 a layer: 318 at depth 6, 1,600 at depth 24, 318 at width 64"),
        (entry(wide=400), "regressed", COMPILED, "52 a layer: 318 at depth 6, 1,254 at depth 24, 400 at width 64"),
        (entry(deep=1255), "changed", COMPILED, "52.1 a layer: 318 at depth 6, 1,255 at depth 24, 318 at width 64"),
        (entry(deep=1000), "improved", COMPILED, "37.9 a layer: 318 at depth 6, 1,000 at depth 24, 318 at width 64"),
        (
            entry(times=(3.0, 25.0, 3.0)),
            "regressed",
            TRACING,
            "3 at depth 6, 25 at depth 24, 3 at width 64, in yardsticks: 2.07 times as long",
        ),
        (
            entry(times=(1.0, 5.0, 1.0)),
            "improved",
            TRACING,
            "1 at depth 6, 5 at depth 24, 1 at width 64, in yardsticks: 0.467 times as long",
        ),
        (entry(problem="RecursionError"), "regressed", "made", "RecursionError"),
    ],
)
def test_each_change_has_its_class(new, change, place, said):
    """A quarter more at any size is a regression, and so is twice the time; any other count is a change."""
    [difference], outcome = compared([entry()], [new])
    assert (difference.change, difference.case, difference.place) == (change, NAME, place)
    assert difference.new == said
    assert (outcome == "regressed") == (change == "regressed")


def test_what_noise_explains_is_the_same():
    """Times that are not twice as long, and such of one report only, as of compiling where a cache had the program."""
    slower = entry(times=(5.0, 17.0, 5.0))
    slower["sizes"][0]["times"][COMPILING] = 24.0
    assert compared([entry()], [slower])[0] == compared([slower], [entry()])[0] == []


def test_what_only_one_report_has_is_a_fact():
    """A program, or its sizes."""
    [difference], _ = compared([], [entry()])
    assert difference.change == "new"
    other = copy.deepcopy(entry())
    other["sizes"][1]["depth"] = 48
    for now in ([], [other]):
        [difference], outcome = compared([entry()], now)
        assert difference.change == "gone" and outcome == "cannot tell"
    assert difference.new == "depth 6, width 16; depth 48, width 16; depth 6, width 64"


def test_a_program_that_was_not_seen_is_recorded_with_its_reason():
    """So that the next report says what broke."""
    assert program_entry(NAME, Failed("too deep")) == {"id": NAME, "problem": "too deep", "sizes": []}


def test_a_layer_that_is_applied_twice_is_a_line(tmp_path):
    """Its numbers may be right, and it grows in proportion: only the other report tells. Both reports are valid."""
    entries = []
    for own in (layer, layer, lambda x, w: layer(layer(x, w), w)):
        program = GrowingProgram("p", written_out(lambda own=own: own))
        sizes = tuple(measure(program, depth, 8) for depth in (2, 4))
        entries.append(program_entry(program.id, ProgramSeen(sizes, ())))
    write_report(new_report() | {"programs": entries[:1]}, tmp_path / "report.json")
    once, again, twice = entries
    counts = [[size["counts"] for size in each["sizes"]] for each in (once, again)]
    assert counts[0] == counts[1]
    differences, outcome = compared([once], [twice])
    told = {each.place: each for each in differences if each.change == "regressed"}
    assert outcome == "regressed" and told.keys() >= counts[0][0].keys()
    assert " a layer: " in told[COMPILED].old and " at depth 2, " in told[COMPILED].new
