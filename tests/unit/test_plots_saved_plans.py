"""A plan that was saved is planned again: its pictures are of what the file has, or there are none."""

import json
from functools import cache

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.planning.document import answer, document
from meshproof.planning.memory import MOMENTS, PRECISIONS
from meshproof.planning.models import Model, models
from meshproof.plots import saved_plans
from meshproof.plots.reading import PlotError, read_files
from meshproof.plots.saved_plans import read_plan
from meshproof.report.schemas import read_schema
from tests.unit.planning.plans import question

pytestmark = pytest.mark.any_stack

ASKED = "--config", "gpt-2-medium", "--hardware", "h100", "--chips", "8"


@cache
def printed(*options):
    """What `meshproof plan --json` prints."""
    ended = CliRunner().invoke(app, ["plan", *ASKED, *options, "--json"])
    assert ended.exit_code in (0, 1), ended.output
    return ended.stdout


def planned(*options):
    """The same as data, to be changed."""
    return json.loads(printed(*options))


@pytest.fixture
def file(tmp_path):
    """Writes a plan, and returns its path."""

    def write(told):
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(told), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "options",
    [
        *(("--precision", name, "--optimizer", kept) for name in PRECISIONS for kept in MOMENTS),
        ("--network", "ethernet-10", "--memory-gb", "40", "--mfu", "0.45"),
        ("--sequence", "512", "--batch-tokens", "65536"),
    ],
    ids=" ".join,
)
def test_a_saved_plan_is_the_plan(options):
    """With every option that a plan depends on: all of its document is the same again."""
    told = planned(*options)
    assert json.loads(json.dumps(document(read_plan(told)))) == told


@pytest.mark.parametrize("name", models())
def test_every_model_is_read(name):
    """With a vocabulary or without, and of layers or not."""
    asked = question(name, "v5p", 8)
    assert read_plan(json.loads(json.dumps(document(answer(asked))))).question == asked


def test_the_schema_has_the_sizes_of_a_model():
    """All of them and no others, and every precision."""
    properties = read_schema("plan")["properties"]
    assert properties["model"]["properties"].keys() == Model.__dataclass_fields__.keys()
    assert properties["precision"]["enum"] == [*PRECISIONS]


def edited(*path, value):
    """A plan in which one value is another."""
    told = planned()
    *parents, last = path
    part = told
    for name in parents:
        part = part[name]
    part[last] = value
    return told


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("strategies", 0, "seconds", "step"), 1.0, r"at strategies\[0\].seconds.step: 1.0, which is \d"),
        (("ladder", "FSDP", "memory", "logits"), 0.0, r"at ladder.FSDP.memory.logits: 0.0, which is \d"),
        (("ladder", "FSDP"), None, r"at ladder.FSDP: None, which is \d+ entries today"),
        (("strategies",), [], r"at strategies: 0 entries, which is \d+ entries today"),
        (
            ("moment_bytes",),
            4,
            r"at ladder.data parallel.memory.moments: \S+, which is \S+ today: it was",
        ),
        (("hardware", "chip"), "h9", "'h9' is no chip that is known here; expected one of v4"),
        (("hardware", "chips"), 0, r"this is JSON, but no plan: at hardware.chips: 0 is less than"),
        (("hardware", "mfu"), 2, "--mfu 2: expected a share"),
        (("model", "layers"), 1.5, r"this is JSON, but no plan: at model.layers: 1.5 is not of type"),
        (("model", "depth"), 1, r"no plan: at model: Additional properties are not allowed \('depth'"),
        (("model", "d_ff"), 10**6, "contradicts the other sizes"),
        (("precision",), "fp8", 'no plan: at precision: "fp8" is not one of'),
        (("schema",), 2, "no plan: at schema: 1 was expected"),
        (("batch",), 7, "--batch-tokens 7 is no whole number of sequences"),
    ],
)
def test_another_plan_is_refused(file, path, value, message):
    """By its file, with the place and both numbers, and what makes it again."""
    with pytest.raises(PlotError, match=message) as refused:
        read_files([file(edited(*path, value=value))])
    told = str(refused.value)
    assert "plan.json: " in told and told.endswith("; `meshproof plan … --json` makes it again") and len(told) < 400


def test_an_older_plan_is_refused(file):
    """Which did not say what an optimizer keeps."""
    told = planned()
    del told["moment_bytes"]
    with pytest.raises(PlotError, match='at its top: "moment_bytes" is a required property'):
        read_files([file(told)])


def test_a_plan_of_other_formulas_would_be_drawn_were_it_not_compared(monkeypatch):
    """The comparison alone refuses it; what another machine reckons in the last digits is no other plan."""
    told = edited("strategies", 0, "seconds", "step", value=1.0)
    near = planned()
    near["strategies"][0]["seconds"]["step"] *= 1 + 1e-15
    assert read_plan(near).fits
    monkeypatch.setattr(saved_plans, "differences", lambda *_: [])
    assert read_plan(told).fits
