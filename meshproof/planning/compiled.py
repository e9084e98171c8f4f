"""A plan beside the program that a compiler made of it, and where the two part: which term, by how many bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from meshproof.planning.advice import size
from meshproof.planning.costs import Memory, Plan, plan_of
from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32
from meshproof.planning.models import Model, PlanError
from meshproof.planning.proposing import Piece
from meshproof.planning.reading import layers_of, sizes_of
from meshproof.planning.search import Question
from meshproof.planning.verifying import AXES, ROUNDS

TOKEN = 4
"""Bytes of a token, and of its label."""

SCORES = "scores of attention, not counted by the formula, if no kernel fuses them"

Facts = Mapping[str, Any]


def beside(question: Question, piece: Piece, facts: Facts) -> dict[str, Any]:
    """Formula and compiler as data, of the model that was built; all bytes are of one device and step.

    ``parted`` says in words where the program is not what was planned, empty where it is. Raises `PlanError` where
    what was built is no model that formulas know.
    """
    try:
        model, layer = built(question.model, facts["leaves"])
    except PlanError as error:
        raise PlanError(f"--verify: {facts['case']}: what was built is no model of equal layers: {error}") from error
    more = question.model.layers - model.layers
    whole = replace(model, layers=question.model.layers, parameters=model.parameters + more * layer)
    plan, every = (
        plan_of(each, piece.layout, piece.batch, question.chip, question.precision) for each in (model, whole)
    )
    memory = facts["memory"]
    besides = memory["temporary"] + memory["outputs"] - memory["aliased"]
    (state, temporary), (every_state, every_temporary) = map(shares, (plan.memory, every.memory))
    program = memory["arguments"] * every_state / state + besides * every_temporary / temporary
    told = {
        "case": facts["case"],
        "target": facts["target"],
        "seconds": facts["seconds"],
        "strategy": piece.layout.name,
        "mesh": piece.layout.mesh,
        "recomputes": piece.layout.recomputes,
        "scaled": list(scaled(question, piece, model)),
        "built": list(differences(question.model, whole)),
        "arguments": arguments(plan, piece, facts),
        "temporary": {"formula": temporary, "compiler": besides, "terms": temporary_terms(plan, model, piece)},
        "held": {"formula": every.memory.total, "compiler": program, "memory": question.chip.memory},
        "moved": list(moved(plan, facts["lanes"])),
        "collectives": facts["lanes"],
    }
    return told | {"parted": list(parted(question, told))}


def shares(held: Memory) -> tuple[float, float]:
    """What a device keeps from step to step, and what it holds beside that."""
    state = held.parameters + held.moments
    return state, held.total - state


def temporary_terms(plan: Plan, model: Model, piece: Piece) -> dict[str, float]:
    """What the formula counts beside the state; and what it leaves out, by its name."""
    counted = {name: amount for name, amount in plan.memory.terms.items() if amount}
    terms = {name.replace("_", " "): counted[name] for name in counted if name not in ("parameters", "moments")}
    layers = 1 if piece.layout.recomputes else model.layers
    scores = layers * piece.batch / piece.layout.ways * model.length * model.heads / piece.layout.tensor * FLOAT32
    return terms | {SCORES: scores}


def built(model: Model, leaves: list[dict[str, Any]]) -> tuple[Model, int]:
    """The model that was compiled, by the shapes of its parameters; and the parameters of one layer."""
    shapes = {leaf["path"]: tuple(leaf["shape"]) for leaf in leaves if leaf["part"] == "parameters"}
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


def arguments(plan: Plan, piece: Piece, facts: Facts) -> dict[str, Any]:
    """Bytes of the step's arguments, and what the compiler has beside the formula, term by term."""
    layout, leaves = piece.layout, facts["leaves"]
    formula = shares(plan.memory)[0] + 2 * TOKEN * piece.batch / layout.ways
    terms: dict[str, float] = {}
    whole = {leaf["path"]: leaf["bytes"] - expected(leaf, layout) for leaf in leaves if leaf["elements"] > 1}
    excess = {path: extra for path, extra in whole.items() if round(extra)}
    if excess:
        largest = max(excess, key=lambda path: abs(excess[path]))
        terms[f"arrays not split as planned: {len(excess)}, most of it {largest}"] = sum(excess.values())
    if counters := sum(leaf["bytes"] for leaf in leaves if leaf["elements"] == 1):
        terms["counters of one number"] = counters
    if padding := sum(leaf["taken"] - leaf["bytes"] for leaf in leaves):
        terms["whole tiles of this chip"] = padding
    known = sum(expected(leaf, layout) for leaf in leaves if leaf["elements"] > 1)
    if others := known - formula:
        terms["arrays that no formula counts"] = others
    seen = facts["memory"]["arguments"]
    return {
        "formula": formula,
        "compiler": seen,
        "terms": {why: round(amount) for why, amount in terms.items() if round(amount)},
        "unexplained": round(seen - formula - sum(terms.values())),
    }


def expected(leaf: Mapping[str, Any], layout: Layout) -> float:
    """Bytes of an array on a device if it were split as a plan splits it."""
    ways = {
        "parameters": layout.tensor * (layout.data if layout.zero == 3 else 1),
        "optimizer state": layout.tensor * (layout.data if layout.zero else 1),
        "batch": layout.ways,
    }
    return float(leaf["elements"] * leaf["itemsize"] / ways[leaf["part"]])


def moved(plan: Plan, lanes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What each axis moves: each collective as often as an all-gather of its tensor would take."""
    for line in plan.traffic:
        axis = next(name for name, called in AXES.items() if called == line.axis)
        own = [lane for lane in lanes if lane["axes"] == [axis] and lane["operation"] in ROUNDS]
        seen, listed = (
            sum(ROUNDS[lane["operation"]] * (lane[what] or 0) for lane in own) for what in ("census", "budget")
        )
        yield {"axis": line.axis, "moves": line.moves, "formula": line.bytes, "budget": listed, "compiler": seen}


def parted(question: Question, told: Mapping[str, Any]) -> Iterator[str]:
    """Where the program is not what was planned."""
    if extra := told["arguments"]["unexplained"]:
        yield f"arguments: {extra:+,} bytes of a device that no leaf of the state or the batch accounts for"
    for lane in told["collectives"]:
        if lane["census"] != lane["budget"]:
            over = "×".join(lane["axes"])
            saw = "an unknown number of" if lane["census"] is None else f"{lane['census']:,}"
            yield f"{lane['operation']} over {over}: expected {lane['budget']:,} bytes, saw {saw}"
    held = told["held"]
    fits = held["compiler"] <= held["memory"]
    if fits != (held["formula"] <= question.usable):
        yield (
            f"the program takes {size(held['compiler'])} of the {size(held['memory'])} of a device, so that it "
            f"{'fits' if fits else 'does not fit'}; by the formula it takes {size(held['formula'])} of the "
            f"{size(question.usable)} that can be used"
        )
    elif not fits:
        yield f"the program takes {size(held['compiler'])} of the {size(held['memory'])} of a device: it does not fit"


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
