"""Operations of two versions: what went wrong, is refused, or moves more is a line with its class."""

import copy
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from meshproof.comparison.comparing import compare
from meshproof.operations import Operand, Operation
from meshproof.operations.observing import observe_operation
from meshproof.operations.programs import current_mesh
from meshproof.operations.recording import operation_entry
from meshproof.operations.transforms import PLAIN, Transform, TransformFamily
from meshproof.operations.transforms.bodies import BODIES
from meshproof.operations.transforms.observing import observe_family
from meshproof.operations.transforms.settings import FORMS, GROUNDS, Setting
from meshproof.report.document import write_report
from tests.reports import new_report

LAYOUT = "a=2,b=4 Auto: P('a', None) -> P('a', None)"
GATHER = {
    **{"operation": "all-gather", "axes": ["a"], "executions": 1, "tensors": 1, "bytes": 512, "dtype": "f32"},
    **{"realized_as": "all-gather", "phase": "other"},
}


def entry(forward="right", gradient="right", collectives=(), problem=None):
    """An operation with one layout."""
    layout = {"forward": forward, "gradient": gradient, "collectives": list(collectives)}
    return {"id": "op@operations", "problem": problem, "layouts": {LAYOUT: layout}}


def compared(old, new):
    """What a comparison says of operations, and its verdict."""
    reports = [copy.deepcopy(new_report()) | {"operations": entries} for entries in (old, new)]
    comparison = compare(*reports)
    return [each for each in comparison.differences if each.kind in ("operation", "moved")], comparison.outcome


@pytest.mark.parametrize(
    ("old", "new", "change", "place"),
    [
        (entry(), entry(forward="wrong: 3 differ"), "regressed", f"forward, {LAYOUT}"),
        (entry(), entry(gradient="refused: NotImplementedError"), "regressed", f"gradient, {LAYOUT}"),
        (entry(forward="refused: no"), entry(), "improved", f"forward, {LAYOUT}"),
        (entry(forward="refused: no"), entry(forward="refused: never"), "changed", f"forward, {LAYOUT}"),
        (entry(forward="refused: no"), entry(forward="wrong: 1 differs"), "regressed", f"forward, {LAYOUT}"),
        (entry(forward="wrong: 1 differs"), entry(forward="broken: crash"), "changed", f"forward, {LAYOUT}"),
        (entry(forward="wrong: 1 differs"), entry(forward="refused: no"), "improved", f"forward, {LAYOUT}"),
        (entry(), entry(problem="killed by SIGSEGV"), "regressed", "on one device"),
        (entry(), entry(collectives=[GATHER]), "regressed", LAYOUT),
        (entry(collectives=[GATHER]), entry(), "improved", LAYOUT),
        (entry(collectives=[GATHER]), entry(collectives=[GATHER | {"axes": ["b"]}]), "changed", LAYOUT),
        (entry(collectives=[GATHER]), entry(collectives=[GATHER | {"bytes": None}]), "changed", LAYOUT),
    ],
)
def test_each_change_has_its_class(old, new, change, place):
    """Wrong, refused and chattier are regressions; another refusal, and bytes in other lanes, are changes."""
    [difference], outcome = compared([old], [new])
    assert (difference.change, difference.case, difference.place) == (change, "op@operations", place)
    assert (outcome == "regressed") == (change == "regressed")


def test_equal_operations_are_the_same():
    """And one report that has none of them is a fact: new, or gone, which the verdict says."""
    assert compared([entry()], [entry()])[0] == []
    garbage = [entry(forward=f"wrong: 3 of 64 differ: expected 4096.0, saw {saw}") for saw in ("nan", "-1.54e+36")]
    assert compared(garbage[:1], garbage[1:])[0] == [], "memory that nobody wrote"
    [difference], _ = compared([], [entry()])
    assert difference.change == "new"
    [difference], outcome = compared([entry()], [])
    assert difference.change == "gone" and outcome == "cannot tell"


def test_reports_of_operations_alone_are_compared():
    """As `check -k operations` writes them."""
    alone = copy.deepcopy(new_report()) | {"operations": [entry()], "cases": []}
    assert "the old run has no case and no operation" not in compare(alone, copy.deepcopy(alone)).cannot_tell
    bare = alone | {"operations": []}
    assert "the new run has no case and no operation" in compare(alone, bare).cannot_tell


def chatty(x):
    """A gather that its layout does not need."""
    if current_mesh().size > 1:
        x = jax.lax.with_sharding_constraint(x, PartitionSpec())
    return x + 1


def test_a_gather_that_a_layout_does_not_need_is_seen(tmp_path):
    """Its numbers are right, and it is regressed by its bytes; the report that says so is valid."""
    quiet = Operation("plus_one", lambda x: jnp.add(x, 1), (Operand((8,)),), differentiable=False, axis_types=("Auto",))
    entries = [
        operation_entry(operation.id, observe_operation(operation, False, lambda layout: None))
        for operation in (quiet, replace(quiet, function=chatty))
    ]
    write_report(new_report() | {"operations": entries}, tmp_path / "report.json")
    assert all(each["forward"] == "right" for each in entries[1]["layouts"].values())
    differences, outcome = compared(*([each] for each in entries))
    moved = [each for each in differences if each.kind == "moved" and each.change == "regressed"]
    assert outcome == "regressed" and moved
    assert any(each.old == "nothing" and each.new.startswith("all-gather over ") for each in moved)


def refused(function):
    """A transform that this version does not have."""
    raise NotImplementedError("gone")


def test_a_composition_is_compared_as_an_operation():
    """One that was right and is wrong, or refused, is regressed; and so are more bytes."""
    entries = []
    for apply in (lambda f: f, lambda f: lambda x, w: f(f(x, w)[0], w), refused):
        family = TransformFamily(Transform("planted", apply), (PLAIN,), BODIES)
        settings = [Setting(family.outer, PLAIN, BODIES[0], FORMS[1], GROUNDS[0], "Auto")]
        entries.append(operation_entry(family.id, observe_family(family, settings, lambda layout: None)))
    right, wrong, gone = entries
    for now, word in ((wrong, "wrong: "), (gone, "refused: NotImplementedError: gone")):
        differences, outcome = compared([right], [now])
        assert outcome == "regressed" and {each.case for each in differences} == {"transform-planted@operations"}
        said = {each.place.partition(",")[0]: each.new for each in differences if each.kind == "operation"}
        assert said.keys() == {"forward", "gradient"} and all(new.startswith(word) for new in said.values())
    assert any(each.kind == "moved" and each.change == "regressed" for each in compared([right], [wrong])[0])
