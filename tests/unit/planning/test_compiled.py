"""A plan beside a program: both agree of a program that is as planned, and each deviation is told by its term."""

from dataclasses import replace
from math import prod

import pytest

from meshproof.planning.compiled import beside, scaled
from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32, MOMENTS
from meshproof.planning.models import PlanError
from meshproof.planning.proposing import Piece
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
    return told | {"bytes": held, "taken": held}


def facts(ways=8, **memory):
    """An FSDP program over eight devices with momentum, as planned."""
    held = [leaf("parameters", path, shape, ways) for path, shape in PARAMETERS.items()]
    held += [leaf("optimizer state", f"momentum/{path}", shape, ways) for path, shape in PARAMETERS.items()]
    held += [leaf("batch", name, (16, 16), 8, "int32") for name in "xy"]
    size = sum(each["bytes"] for each in held)
    lanes = [("all-gather", ["data"], SIZE * 4), ("reduce-scatter", ["data"], SIZE * 4), ("all-reduce", ["data"], 4)]
    told = {"arguments": size, "outputs": size, "aliased": size, "temporary": 300_000, "peak": None}
    return {
        "case": "fsdp-jax-scanned_gpt@data=8",
        "target": "gpu:h100:8",
        "seconds": 1.0,
        "memory": told | memory,
        "leaves": held,
        "lanes": [
            {"operation": name, "axes": axes, "payloads": [], "budget": size, "census": size, "written": []}
            for name, axes, size in lanes
        ],
    }


@pytest.fixture
def asked():
    """The question of it."""
    toy = question(TOY, "h100", 8, 256, "float32")
    return replace(toy, precision=replace(toy.precision, moments=MOMENTS["momentum"] * FLOAT32))


def test_a_program_as_planned_has_nothing_parted(asked):
    """Arguments to the byte, without a term; what moves, to the metrics; and the model that was built is told."""
    told = beside(asked, PIECE, facts())
    assert told["parted"] == []
    assert told["arguments"]["formula"] == told["arguments"]["compiler"] == SIZE + 256
    assert told["arguments"]["terms"] == {} and told["arguments"]["unexplained"] == 0
    [line] = told["moved"]
    assert line["formula"] == SIZE * 8 and line["compiler"] == SIZE * 8 + 8
    assert told["built"] == [f"parameters 107,136 planned, {SIZE:,} built"]


def test_an_array_that_is_not_split_is_told(asked):
    """By its path, with its bytes; they are explained, so that nothing is parted."""
    program = facts()
    whole = program["leaves"][5]
    extra = whole["elements"] * 4 - whole["bytes"]
    whole["bytes"] = whole["taken"] = whole["elements"] * 4
    program["memory"]["arguments"] += extra
    told = beside(asked, PIECE, program)
    [(why, amount)] = told["arguments"]["terms"].items()
    assert why == "arrays not split as planned: 1, most of it blocks/linear_1" and amount == extra
    assert told["parted"] == []


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
    ("census", "message"),
    [(8, "reduce-scatter over data: expected 417,792 bytes, saw 8"), (None, "saw an unknown number of")],
)
def test_a_collective_that_moves_otherwise_is_parted(asked, census, message):
    """By its operation and axes, with both numbers."""
    program = facts()
    program["lanes"][1]["census"] = census
    [told] = beside(asked, PIECE, program)["parted"]
    assert message in told


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
