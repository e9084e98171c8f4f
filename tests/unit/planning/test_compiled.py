"""A plan beside a program: both agree of a program that is as planned, and each deviation is told by its term."""

import re
from dataclasses import replace
from math import prod

import pytest

from meshproof.hlo import Collective
from meshproof.measures.traffic import Traffic
from meshproof.planning.arrays import parameters_of
from meshproof.planning.compiled import beside, parted_lane, scaled, widens
from meshproof.planning.largest import ACTIVATIONS, IN_USE, LOGITS, SCORES, term_of
from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32, MOMENTS, PRECISIONS
from meshproof.planning.models import PlanError
from meshproof.planning.printing import lane_row
from meshproof.planning.proposing import Piece
from meshproof.proposals.compiling import lane
from tests.unit.planning.plans import question
from tests.unit.planning.test_verifying import TOY

PARAMETERS = {
    "token_embedding/embedding": (96, 64),
    **dict.fromkeys(("blocks/query", "blocks/key", "blocks/value"), (2, 64, 8, 8)),
    "blocks/out": (2, 8, 8, 64),
    "blocks/linear_1": (2, 64, 256),
    "blocks/linear_2": (2, 256, 64),
}
SIZE = 96 * 64 + 2 * (4 * 64 * 64 + 2 * 64 * 256)
PIECE = Piece(Layout(3, data=8), 256, 1)


def leaf(part, path, shape, ways, dtype="float32"):
    """An argument as the compiling process tells it, split in so many ways."""
    elements = prod(shape)
    held = elements * 4 // ways
    told = {"part": part, "path": path, "shape": list(shape), "dtype": dtype, "elements": elements, "itemsize": 4}
    return told | {"bytes": held, "taken": held, "spec": f"split {ways} ways"}


def facts(ways=8, **memory):
    """An FSDP program over eight devices with momentum, as planned."""
    held = [leaf("parameters", path, shape, ways) for path, shape in PARAMETERS.items()]
    held += [leaf("optimizer state", f"momentum/{path}", shape, ways) for path, shape in PARAMETERS.items()]
    held += [leaf("batch", name, (16, 16), 8, "int32") for name in "xy"]
    size = sum(each["bytes"] for each in held)
    lanes = [("all-gather", SIZE * 4), ("reduce-scatter", SIZE * 4), ("all-reduce", 4)]
    told = {"arguments": size, "outputs": size, "aliased": size, "temporary": 300_000, "peak": None}
    made = [("f32", shape) for shape in ((2, 16, 96), (2, 8, 16, 16), (64, 256), (64, 64), (2, 16, 64), (8,))]
    return {
        "case": "fsdp-jax-scanned_gpt@data=8",
        "target": "gpu:h100:8",
        "seconds": 1.0,
        "memory": told | memory,
        "leaves": held,
        "arrays": [{"dtype": name, "shape": list(shape), "bytes": 4 * prod(shape)} for name, shape in made],
        "lanes": [
            {"operation": name, "axes": ["data"], "payloads": ["it"], "budget": size, "census": size, "written": [name]}
            | {"scattered": 0}
            for name, size in lanes
        ],
    }


@pytest.fixture
def asked():
    """The question of it."""
    toy = question(TOY, "h100", 8, 256, "float32")
    return replace(toy, precision=replace(toy.precision, moments=MOMENTS["momentum"] * FLOAT32))


def test_a_program_as_planned_has_nothing_parted(asked):
    """Arguments to the byte, kind by kind; each collective too; and the model that was built is told."""
    told = beside(asked, PIECE, facts())
    assert told["parted"] == told["arrays"] == []
    assert told["arguments"]["formula"] == told["arguments"]["compiler"] == SIZE + 256
    assert told["arguments"]["terms"] == {} and told["arguments"]["unexplained"] == 0
    parts = {part: found["formula"] for part, found in told["arguments"]["parts"].items()}
    assert parts == {"parameters": SIZE // 2, "optimizer state": SIZE // 2, "batch": 256}
    [line] = told["moved"]
    assert line["formula"] == line["compiler"] == SIZE * 8 + 8 and line["sizes"] == SIZE * 8
    assert [lane["planned"] for lane in told["collectives"]] == [SIZE * 4, SIZE * 4, 4]
    assert told["built"] == [f"parameters 107,136 planned, {SIZE:,} built"]


def test_an_array_that_is_not_split_is_parted(asked):
    """By its kind, path, shape and sharding, with both sizes; the arguments are told without it."""
    program = facts()
    whole = program["leaves"][5]
    extra = whole["elements"] * 4 - whole["bytes"]
    whole |= {"bytes": whole["elements"] * 4, "taken": whole["elements"] * 4, "spec": "P() (replicated)"}
    program["memory"]["arguments"] += extra
    told = beside(asked, PIECE, program)
    assert told["arguments"]["terms"] == {"arrays otherwise than planned": extra}
    assert told["parted"] == [
        "parameters: blocks/linear_1 [2, 64, 256]: planned 16,384 bytes of a device, the program has 131,072, sharded "
        "as P() (replicated)"
    ]


@pytest.mark.parametrize(
    ("part", "path", "shape", "ways", "message"),
    [
        ("optimizer state", "nu/blocks/out", (2, 8, 8, 64), 8, "nu/blocks/out [2, 8, 8, 64]: planned 0 bytes"),
        ("batch", "weights", (2048,), 8, "batch: weights [2048]: planned 0 bytes of a device, the program has 1,024"),
    ],
)
def test_an_array_that_no_plan_has_is_parted(asked, part, path, shape, ways, message):
    """As a second moment where one was planned, or a field of the batch beside its tokens."""
    program = facts()
    program["leaves"].append(leaf(part, path, shape, ways))
    program["memory"]["arguments"] += program["leaves"][-1]["bytes"]
    [told] = beside(asked, PIECE, program)["parted"]
    assert message in told


def test_a_moment_that_is_not_kept_is_parted(asked):
    """By the parameter that it would be of."""
    program = facts()
    program["leaves"] = [each for each in program["leaves"] if each["path"] != "momentum/blocks/linear_2"]
    program["memory"]["arguments"] -= 16384
    [told] = beside(asked, PIECE, program)["parted"]
    assert "a moment of blocks/linear_" in told and "planned 16,384 bytes of a device, the program has 0" in told


def test_tiles_and_counters_are_told(asked):
    """What a chip pads, and what an optimizer counts."""
    program = facts()
    program["leaves"][0]["taken"] += 512
    program["leaves"].append(leaf("optimizer state", "count", (), 1))
    program["memory"]["arguments"] += 516
    told = beside(asked, PIECE, program)["arguments"]
    assert told["terms"] == {"counters of one number": 4, "whole tiles of this chip": 512}
    assert told["unexplained"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arguments": SIZE + 256 + 64}, "arguments: +64 bytes of a device that no leaf of the state"),
        ({"temporary": 10**12}, "so that it does not fit; by the formula it takes"),
    ],
    ids=["arguments", "memory"],
)
def test_what_is_not_as_planned_is_parted(asked, change, message):
    """Bytes that nothing explains, and memory that the chip does not have."""
    [told] = beside(asked, PIECE, facts(**change))["parted"]
    assert message in told


@pytest.mark.parametrize(
    ("census", "budget", "message"),
    [
        (
            8,
            SIZE * 4,
            "reduce-scatter of it over data: planned 417,792 bytes, budgeted 417,792, the program has 8",
        ),
        (None, SIZE * 4, "the program has an unknown number of (written as reduce-scatter)"),
        (SIZE * 8, SIZE * 8, "planned 417,792 bytes, budgeted 835,584, the program has 835,584"),
        (SIZE * 4, 8, "reduce-scatter of it over data: expected 8 bytes by the strategy's own budget, saw 417,792"),
    ],
)
def test_a_collective_that_moves_otherwise_is_parted(asked, census, budget, message):
    """By its operation and axes, with all numbers; also where the budget says the same as the program."""
    program = facts()
    program["lanes"][1] |= {"census": census, "budget": budget}
    [told] = beside(asked, PIECE, program)["parted"]
    assert message in told


def test_a_scattered_sum_moves_once(asked):
    """ZeRO-1's all-reduce of a gradient, written as a reduce-scatter: right by its budget, and half as much moves."""
    entries = tuple(
        Collective("all-reduce", ("data",), 1, 1, size, "f32", written, "other")
        for written, size in (("all-reduce-start", 4), ("reduce-scatter-start", SIZE * 4))
    )
    traffic = Traffic(("all-reduce", ("data",)), SIZE * 4 + 4, SIZE * 4 + 4, entries, ())
    gathered = Traffic(("all-gather", ("data",)), SIZE * 4, SIZE * 4, entries[1:], ())
    program = facts() | {"lanes": [lane(gathered), lane(traffic)]}
    told = beside(asked, replace(PIECE, layout=Layout(1, data=8)), program)
    [line] = told["moved"]
    assert (line["formula"], line["compiler"]) == (3 * SIZE * 4 + 8, 2 * SIZE * 4 + 8)
    assert not [why for why in told["parted"] if " over data" in why]
    rows = [list(lane_row(each))[-1] for each in told["collectives"]]
    assert rows == ["reduce-scatter-start", f"all-reduce-start, reduce-scatter-start ({SIZE * 4:,} scattered)"]


def test_a_collective_that_one_side_has_is_parted(asked):
    """One that no plan has, and one that the program has not."""
    program = facts()
    program["lanes"][2]["operation"] = "all-to-all"
    one, other = beside(asked, PIECE, program)["parted"]
    assert one.startswith("all-to-all of it over data: planned 0 bytes, budgeted 4, the program has 4")
    assert other == "all-reduce of nothing listed over data: planned 4 bytes, budgeted 0, the program has 0"


def test_a_program_far_from_its_formula_is_parted(asked):
    """From 256 MiB on, with the factor, both numbers and the largest term."""
    large = replace(PIECE, batch=256 * 8192)
    program = facts(temporary=10**10)
    program["leaves"] = [each for each in program["leaves"] if each["part"] != "batch"]
    program["leaves"] += [leaf("batch", name, (131072, 16), 8, "int32") for name in "xy"]
    program["memory"]["arguments"] += 2 * 4 * 256 * 8191 // 8
    [told] = beside(replace(asked, batch=large.batch), large, program)["parted"]
    assert re.fullmatch(
        r"the program takes 10 GB of a device, \d\.\d\d times its formula, \d\.\d+ GB: expected 0\.4 to 2\.5 times; "
        r"most of the formula is activations, the program's largest arrays are f32\[64,256\] of parameters in use, or "
        r"gradients, 65,536 bytes; f32\[2,8,16,16\] of scores of attention, 16,384 bytes; f32\[2,16,96\] of logits, "
        r"12,288 bytes; f32\[2,16,64\] of activations, 8,192 bytes",
        told,
    ), told


def test_a_pipeline_is_held_to_its_own_budget(asked):
    """No plan knows its schedule: stages split layers, and what moves is not planned."""
    piece = replace(PIECE, layout=Layout(pipeline=2, data=4))
    told = beside(asked, piece, facts())
    assert {lane["planned"] for lane in told["collectives"]} == {None}
    assert not [why for why in told["parted"] if " over data" in why]


def test_what_both_say_does_not_fit_is_told(asked):
    """One line, not that they disagree."""
    small = replace(asked, chip=replace(asked.chip, memory=100_000))
    [told] = beside(small, PIECE, facts())["parted"]
    assert told.endswith("of a device: it does not fit")


def test_what_was_compiled_is_said(asked):
    """The whole step, or one of its microbatches."""
    assert beside(asked, PIECE, facts())["scaled"] == []
    [told] = scaled(asked, replace(PIECE, batch=64, of=4), TOY)
    assert told.startswith("one of 4 microbatches, 64 of 256 tokens: ")


def test_layers_that_were_not_compiled_are_counted(asked):
    """Of a model of eight layers, two of which were: what is held in all is of eight, and that is said."""
    eight = replace(asked.model, layers=8, parameters=96 * 64 + 4 * (SIZE - 96 * 64))
    two, told = beside(asked, PIECE, facts()), beside(replace(asked, model=eight), PIECE, facts())
    assert told["scaled"][0].startswith("2 of 8 layers: ") and told["built"] == []
    assert two["held"]["compiler"] == pytest.approx(SIZE + 256 + 300_000)
    assert told["arguments"] == two["arguments"] and told["parted"] == []
    assert 3 < told["held"]["formula"] / two["held"]["formula"] < 4
    assert 3 < told["held"]["compiler"] / two["held"]["compiler"] < 4


def test_a_program_of_no_such_model_is_refused(asked):
    """What was read of it, and why that is none."""
    program = facts()
    program["leaves"] = [each for each in program["leaves"] if "linear" in each["path"] or each["part"] == "batch"]
    with pytest.raises(PlanError, match="fsdp-jax-scanned_gpt@data=8: what was built is no model of equal layers"):
        beside(asked, PIECE, program)


@pytest.mark.parametrize(
    ("shape", "term"),
    [
        ((64, 8, 8), IN_USE),
        ((2, 64, 256), IN_USE),
        ((96, 64), IN_USE),
        ((2, 8, 256), IN_USE),
        ((64, 32), IN_USE),
        ((2, 16, 96), LOGITS),
        ((32, 96), LOGITS),
        ((2, 8, 16, 16), SCORES),
        ((2, 2, 16, 64), ACTIVATIONS),
        ((2, 16, 256), ACTIVATIONS),
    ],
)
def test_an_array_belongs_to_a_term(asked, shape, term):
    """By its shape: a parameter, or a part of one; a score of each two positions; a number for each token of all."""
    parameters = parameters_of(PARAMETERS, asked.model, PIECE.layout)
    assert term_of(shape, parameters, asked.model, PIECE.layout) == term


@pytest.mark.parametrize(
    ("census", "times", "agrees"), [(200, 2, True), (201, 2, False), (99, 2, False), (200, 1, False)]
)
def test_a_reduction_moves_so_many_times_its_bytes_at_most(census, times, agrees):
    """As gradients in bfloat16 do that a CPU adds up in float32."""
    told = {"operation": "all-reduce", "axes": ["data"], "payloads": ["gradients"], "written": [], "census": census}
    assert (list(parted_lane(told | {"planned": 100, "budget": 100, "times": times})) == []) == agrees


@pytest.mark.parametrize(
    ("target", "precision", "times"), [("cpu", "mixed", 2), ("cpu", "float32", 1), ("gpu:h100:8", "mixed", 1)]
)
def test_a_cpu_alone_reduces_wider_than_planned(target, precision, times):
    """And only what is planned in bfloat16."""
    assert widens(target, PRECISIONS[precision]) == times
