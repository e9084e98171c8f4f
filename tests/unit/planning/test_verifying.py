"""A record is compared with formulas case by case, and what cannot be compared is named."""

import json
from dataclasses import replace

import pytest

from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32, MOMENTS
from meshproof.planning.models import Model, PlanError
from meshproof.planning.verifying import layout_of, verified, verify
from tests.reports import new_report
from tests.system.test_plan_command import invoke
from tests.unit.planning.plans import question

TOY = Model("gpt", 107136, 2, 64, 256, heads=8, vocabulary=96, tied=True, length=16)
"""The transformer of the book's cases."""

MEMORY = {"state": 857088, "arguments": 857344, "outputs": 857644, "aliased": 857088, "temporary": 857432, "peak": 1}
"""Of its data parallelism on eight virtual devices, with jax 0.12.0.1."""


def case(**changed):
    """A case as a record has it."""
    told = {"id": "data_parallel-jax-gpt@data=8", "strategy": "data_parallel", "mesh": {"data": 8}, "memory": MEMORY}
    moved = [("all-reduce", ["data"], 428544), ("all-reduce", ["data"], 4), ("collective-permute", ["data"], 99)]
    told["collectives"] = [dict(zip(("operation", "axes", "bytes"), each, strict=True)) for each in moved]
    return told | changed


def asked(devices=8):
    """The question of these cases, with one moment."""
    toy = question(TOY, "h100", devices, 256, "float32")
    return replace(toy, precision=replace(toy.precision, moments=MOMENTS["momentum"] * FLOAT32))


def test_amounts_stand_beside_each_other():
    """State exactly; what axes move, all-reduces twice, and hops not; temporary memory by its terms."""
    found, remarks = verify(asked(), {"cases": [case()]})
    amounts = {each.what: each for each in found}
    assert not remarks and amounts.keys() == {"state", "temporary", "moved over data"}
    assert amounts["state"].ratio == 1 and amounts["moved over data"].compiler == 2 * 428548
    assert amounts["moved over data"].ratio == pytest.approx(1, rel=1e-4)
    assert amounts["temporary"].ratio == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize(
    ("changed", "layout"),
    [
        ({}, Layout(data=8)),
        (
            {"strategy": "fsdp_blockwise_shard_map", "id": "a-jax-gpt+remat+bf16@data=8"},
            Layout(3, data=8, recomputes=True),
        ),
        ({"strategy": "hsdp", "mesh": {"replica": 2, "data": 4}}, Layout(3, replica=2, data=4)),
        ({"strategy": "fsdp_tensor_parallel_shard_map", "mesh": {"data": 4, "model": 2}}, Layout(3, data=4, tensor=2)),
        ({"strategy": "single_device", "mesh": {"data": 1}}, Layout()),
        (
            {"strategy": "pipeline_gpipe"},
            "no plan is called pipeline_gpipe; expected one of single_device, data_parallel",
        ),
        ({"id": "fsdp-jax-mlp+accum@data=8"}, "a plan knows no accum"),
        ({"mesh": {"expert": 8}}, "a plan has no axis expert"),
    ],
)
def test_cases_are_layouts(changed, layout):
    """By their strategy, however it is written, their mesh and their modifiers; or a reason."""
    found = layout_of(case(**changed))
    assert found.startswith(layout) if isinstance(layout, str) else found == layout


def test_what_is_not_compared_is_named():
    """Another number of devices, and a program that could not be read."""
    other, unread = case(mesh={"data": 2}, id="two"), case(memory=None, id="unread")
    _, remarks = verify(asked(), {"cases": [case(), other, unread]})
    assert remarks == ["two: it has 2 devices, the question 8", "unread: its program could not be read"]


def test_a_record_without_a_comparable_case_is_refused():
    """With the reason of each."""
    with pytest.raises(PlanError, match=r"no case of this report can be compared: .*it has 8 devices, the question 4"):
        verified(asked(4), {"cases": [case()]})
    with pytest.raises(PlanError, match="it has none"):
        verified(asked(), {"cases": []})


def test_a_file_that_is_no_report_is_an_error(tmp_path):
    """By its name; so is one without a case that fits the question."""
    path = tmp_path / "report.json"
    arguments = ("--config", "llama-8b", "--hardware", "h100", "--chips", 7, "--batch-tokens", 7 * 8192)
    path.write_text("{", encoding="utf-8")
    ended = invoke(*arguments, "--against", path)
    assert ended.exit_code == 2 and "report.json" in ended.stderr
    path.write_text(json.dumps(new_report()), encoding="utf-8")
    ended = invoke(*arguments, "--against", path)
    assert ended.exit_code == 2 and "no case of this report can be compared" in ended.stderr
    ended = invoke(*arguments, "--optimizer", "lion")
    assert ended.exit_code == 2 and "--optimizer lion: expected one of adam, momentum, sgd" in ended.stderr
