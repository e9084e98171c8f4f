"""A plan beside the program that a compiler made of it, and where the two part: which term, by how many bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from meshproof.planning.advice import size
from meshproof.planning.arrays import (
    Disagreement,
    Leaf,
    Parameter,
    disagreements,
    parameters_of,
    planned_bytes,
    shapes_of,
)
from meshproof.planning.costs import Memory, Plan, plan_of
from meshproof.planning.lanes import Lane, lanes_of
from meshproof.planning.largest import largest
from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32, Precision
from meshproof.planning.models import Model, PlanError
from meshproof.planning.proposing import Piece
from meshproof.planning.reading import layers_of, sizes_of
from meshproof.planning.search import Question
from meshproof.planning.verifying import AXES, ROUNDS

COMPARED = 256 * 1024**2
"""Bytes by formula from which on a program is held to it: below, workspaces of a compiler outweigh it."""

LEAST_HELD, MOST_HELD = 0.4, 2.5
"""What a program holds over its formula, at least and at most: docs/planning.md states both."""

NAMED = 5
"""Arrays otherwise than planned that a terminal names: those with the most bytes."""

REDUCES = ("all-reduce", "reduce-scatter")

OTHERWISE = "arrays otherwise than planned"

SCORES = "scores of attention, not counted by the formula, if no kernel fuses them"

Facts = Mapping[str, Any]


def beside(question: Question, piece: Piece, facts: Facts) -> dict[str, Any]:
    """Formula and compiler as data, of the model that was built; all bytes are of one device and step.

    ``parted`` says in words where the program is not what was planned, empty where it is. Raises `PlanError` where
    what was built is no model that formulas know.
    """
    layout, precision = piece.layout, question.precision
    try:
        model, layer = built(question.model, facts["leaves"])
        parameters = parameters_of(shapes_of(facts["leaves"]), model, layout)
    except PlanError as error:
        raise PlanError(f"--verify: {facts['case']}: what was built is no model of equal layers: {error}") from error
    more = question.model.layers - model.layers
    whole = replace(model, layers=question.model.layers, parameters=model.parameters + more * layer)
    plan, every = (plan_of(each, layout, piece.batch, question.chip, precision) for each in (model, whole))
    held = by_array(plan.memory, parameters, layout, precision, 1)
    every_held = by_array(every.memory, parameters, layout, precision, whole.layers / model.layers)
    planned = list(planned_bytes(facts["leaves"], parameters, layout, precision, piece.batch))
    memory = facts["memory"]
    besides = memory["temporary"] + memory["outputs"] - memory["aliased"]
    (state, temporary), (every_state, every_temporary) = map(shares, (held, every_held))
    program = memory["arguments"] * every_state / state + besides * every_temporary / temporary
    lanes = lanes_of(parameters, model, layout, piece.batch, precision)
    told = {
        "case": facts["case"],
        "target": facts["target"],
        "seconds": facts["seconds"],
        "strategy": layout.name,
        "mesh": layout.mesh,
        "recomputes": layout.recomputes,
        "scaled": list(scaled(question, piece, model)),
        "built": [*differences(question.model, whole), *kept_whole(parameters, layout, precision)],
        "arguments": arguments(planned, facts),
        "arrays": [vars(each) | {"shape": list(each.shape)} for each in disagreements(planned)],
        "temporary": {"formula": temporary, "compiler": besides, "terms": temporary_terms(held, model, piece)}
        | {"largest": list(largest(facts["arrays"], parameters, model, layout))},
        "held": {"formula": every_held.total, "compiler": program, "memory": question.chip.memory},
        "moved": list(moved(plan, lanes, facts["lanes"])),
        "collectives": list(beside_lanes(lanes, facts["lanes"], widens(facts["target"], precision))),
    }
    return told | {"parted": [*parted_arrays(disagreements(planned)), *parted(question, told)]}


def parted_arrays(found: list[Disagreement]) -> Iterator[str]:
    """The first arrays that are not as planned, and how many more there are."""
    yield from map(str, found[:NAMED])
    if rest := found[NAMED:]:
        extra = sum(each.compiled - each.planned for each in rest)
        yield f"{len(rest)} more arrays that are not as planned, {extra:+,} bytes of a device (--json names all)"


def by_array(
    held: Memory, parameters: tuple[Parameter, ...], layout: Layout, precision: Precision, times: float
) -> Memory:
    """The same with its state array by array, those of layers so many ``times``."""
    counted = [(each, each.elements * (times if each.layers else 1)) for each in parameters]
    split = [(1, precision.moments), (2, precision.gradient), (3, precision.parameter)]
    sums = (sum(count * width / each.ways(layout, least) for each, count in counted) for least, width in split)
    moments, gradients, own = sums
    return replace(held, parameters=own, gradients=gradients, moments=moments)


def shares(held: Memory) -> tuple[float, float]:
    """What a device keeps from step to step, and what it holds beside that."""
    state = held.parameters + held.moments
    return state, held.total - state


def temporary_terms(held: Memory, model: Model, piece: Piece) -> dict[str, float]:
    """What the formula counts beside the state; and what it leaves out, by its name."""
    counted = {name: amount for name, amount in held.terms.items() if amount}
    terms = {name.replace("_", " "): counted[name] for name in counted if name not in ("parameters", "moments")}
    layers = 1 if piece.layout.recomputes else model.layers
    scores = layers * piece.batch / piece.layout.ways * model.length * model.heads / piece.layout.tensor * FLOAT32
    return terms | {SCORES: scores}


def built(model: Model, leaves: list[dict[str, Any]]) -> tuple[Model, int]:
    """The model that was compiled, by the shapes of its parameters; and the parameters of one layer."""
    shapes = shapes_of(leaves)
    fields = {leaf["path"]: (tuple(leaf["shape"]), leaf["dtype"]) for leaf in leaves if leaf["part"] == "batch"}
    read = sizes_of(shapes, fields)
    read.pop("examples")
    found = Model("the program", **{"heads": model.heads, "vocabulary": 0} | read)
    return found, sum(map(prod, layers_of(shapes)[1]))


def differences(planned: Model, model: Model) -> Iterator[str]:
    """What was built otherwise than it was planned, with both numbers."""
    for name in ("parameters", "d_model", "d_ff", "heads", "kv_heads", "vocabulary", "length"):
        asked, has = getattr(planned, name), getattr(model, name)
        if name == "kv_heads":
            asked, has = asked or planned.heads, has or model.heads
        if asked and round(asked) != round(has):
            yield f"{name.replace('_', ' ')} {asked:,.0f} planned, {has:,.0f} built"
    if planned.is_tied != model.is_tied:
        yield f"the unembedding is {'the embedding' if model.is_tied else 'another matrix'}, planned otherwise"


def kept_whole(parameters: tuple[Parameter, ...], layout: Layout, precision: Precision) -> Iterator[str]:
    """Parameters that the strategy splits over fewer devices than a plan of sizes alone reckons, with their bytes."""
    axes = {"tensor": [each for each in parameters if layout.tensor > 1 and not each.tensor]}
    if layout.zero and layout.data > 1:
        axes["data"] = [each for each in parameters if not each.data]
    for axis, whole in axes.items():
        if whole:
            largest = max(whole, key=lambda each: each.elements)
            held = sum(each.elements * precision.parameter // each.ways(layout, 3) for each in whole)
            yield (
                f"not split over {axis}: {len(whole)} parameters, {held:,} bytes of a device, most of it {largest.path}"
            )


def arguments(planned: list[tuple[Leaf, int]], facts: Facts) -> dict[str, Any]:
    """Bytes of the step's arguments, and what the compiler has beside the formula, term by term.

    ``parts`` has both of each kind of array. ``terms`` are what else is known to the byte: counters of one number, and
    the tiles in which a program says that it takes an argument.
    """
    leaves = facts["leaves"]
    parts = {
        part: {
            "formula": sum(size for leaf, size in planned if leaf["part"] == part),
            "compiler": sum(leaf["bytes"] for leaf, _ in planned if leaf["part"] == part),
        }
        for part in dict.fromkeys(leaf["part"] for leaf, _ in planned)
    }
    terms = {
        OTHERWISE: sum(leaf["bytes"] - size for leaf, size in planned),
        "counters of one number": sum(leaf["bytes"] for leaf in leaves if leaf["elements"] == 1),
        "whole tiles of this chip": sum(leaf["taken"] - leaf["bytes"] for leaf in leaves),
    }
    formula, seen = sum(size for _, size in planned), facts["memory"]["arguments"]
    return {
        "formula": formula,
        "compiler": seen,
        "parts": parts,
        "terms": {why: amount for why, amount in terms.items() if amount},
        "unexplained": seen - formula - sum(terms.values()),
    }


def widens(target: str, precision: Precision) -> int:
    """How many times its bytes a gradient may move in where it is reduced: XLA:CPU adds those of vectors up in float32,
    and casts their sum. Compilers of chips move them as they are cast."""
    return FLOAT32 // precision.moved if target == "cpu" else 1


def beside_lanes(lanes: Mapping[Lane, int] | None, seen: list[dict[str, Any]], widens: int) -> Iterator[dict[str, Any]]:
    """Each collective with its bytes by the plan, and how many times these may be moved; then those that only the plan
    has. ``None``: no plan of it."""
    due = None if lanes is None else {(name, axis_in_book(axis)): moves for (name, axis), moves in lanes.items()}
    for lane in seen:
        name = lane["operation"], "×".join(lane["axes"])
        times = widens if lane["operation"] in REDUCES else 1
        yield lane | {"planned": None if due is None else due.pop(name, 0), "times": times}
    for (operation, axis), moves in (due or {}).items():
        absent = {"payloads": [], "budget": 0, "census": 0, "scattered": 0, "written": []}
        yield {"operation": operation, "axes": [axis], "planned": moves, "times": 1} | absent


def axis_in_book(axis: str) -> str:
    """What the book calls an axis of a plan."""
    return next((name for name, called in AXES.items() if called == axis), axis)


def moved(plan: Plan, lanes: Mapping[Lane, int] | None, seen: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What each axis moves: each collective as often as an all-gather of its tensor would take.

    ``formula`` adds up array by array, ``sizes`` is what the plan reckons of its sizes alone. ``compiler`` is what the
    program moves: of an all-reduce that it has as a reduce-scatter, one of the two.
    """
    for line in plan.traffic:
        own = [lane for lane in seen if lane["axes"] == [axis_in_book(line.axis)] and lane["operation"] in ROUNDS]
        census, listed = (
            sum(ROUNDS[lane["operation"]] * (lane[what] or 0) for lane in own) for what in ("census", "budget")
        )
        census -= sum(lane["scattered"] for lane in own)
        due = [ROUNDS[name] * size for (name, axis), size in (lanes or {}).items() if axis == line.axis]
        formula = line.bytes if lanes is None else sum(due)
        told = {"axis": line.axis, "moves": line.moves, "formula": formula, "sizes": line.bytes}
        yield told | {"budget": listed, "compiler": census}


def parted(question: Question, told: Mapping[str, Any]) -> Iterator[str]:
    """Where the program as a whole is not what was planned."""
    if extra := told["arguments"]["unexplained"]:
        yield f"arguments: {extra:+,} bytes of a device that no leaf of the state or the batch accounts for"
    for lane in told["collectives"]:
        yield from parted_lane(lane)
    held = told["held"]
    ratio = held["compiler"] / held["formula"]
    if held["formula"] >= COMPARED and not LEAST_HELD <= ratio <= MOST_HELD:
        made = (f"{each['spelled']} of {each['term']}, {size(each['bytes'])}" for each in told["temporary"]["largest"])
        yield (
            f"the program takes {size(held['compiler'])} of a device, {ratio:.2f} times its formula, "
            f"{size(held['formula'])}: expected {LEAST_HELD} to {MOST_HELD} times; most of the formula is "
            f"{max(told['temporary']['terms'], key=told['temporary']['terms'].__getitem__)}, the program's largest "
            f"arrays are {'; '.join(made)}"
        )
    fits = held["compiler"] <= held["memory"]
    if fits != (held["formula"] <= question.usable):
        yield (
            f"the program takes {size(held['compiler'])} of the {size(held['memory'])} of a device, so that it "
            f"{'fits' if fits else 'does not fit'}; by the formula it takes {size(held['formula'])} of the "
            f"{size(question.usable)} that can be used"
        )
    elif not fits:
        yield f"the program takes {size(held['compiler'])} of the {size(held['memory'])} of a device: it does not fit"


def parted_lane(lane: Mapping[str, Any]) -> Iterator[str]:
    """Where a collective moves other bytes than its plan, or than the strategy's own budget."""
    what = f"{lane['operation']} of {', '.join(lane['payloads']) or 'nothing listed'} over {'×'.join(lane['axes'])}"
    saw = "an unknown number of" if lane["census"] is None else f"{lane['census']:,}"
    saw += f" (written as {', '.join(lane['written'])})" if lane["written"] else ""

    def agrees(due: int) -> bool:
        return lane["census"] is not None and due <= lane["census"] <= lane["times"] * due

    if lane["planned"] is not None and not agrees(lane["planned"]):
        yield f"{what}: planned {lane['planned']:,} bytes, budgeted {lane['budget']:,}, the program has {saw}"
    elif not agrees(lane["budget"]):
        yield f"{what}: expected {lane['budget']:,} bytes by the strategy's own budget, saw {saw}"


def scaled(question: Question, piece: Piece, model: Model) -> Iterator[str]:
    """What of the step was compiled, in words."""
    if piece.of > 1:
        yield (
            f"one of {piece.of} microbatches, {piece.batch:,} of {question.batch:,} {question.model.unit}s: the "
            f"formulas below are of as many, and what is added up over microbatches is not in the program"
        )
    if model.layers != question.model.layers:
        yield (
            f"{model.layers} of {question.model.layers} layers: the formulas below are of as many, but for what is "
            f"held in all, where both are of all layers, the program's by the formula of what each takes"
        )
