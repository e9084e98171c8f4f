"""`meshproof plan --impl`: the sizes of a plan are those of a trainer, as its shapes tell them."""

import json

import pytest

from meshproof.commands import plan
from meshproof.proposals.compiling import ProposalError
from meshproof.proposals.shapes import shapes_of
from tests.system.test_plan_command import invoke


def test_a_trainer_is_planned():
    """Its sizes, its batch and its optimizer are read, printed, and planned as if they were given."""
    ended = invoke(
        "--impl", "reference_impl", "--case", "fsdp-jax-scanned_gpt", "--hardware", "h100", "--chips", 8, "--json"
    )
    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    sizes = {"layers": 4, "d_model": 64, "d_ff": 256, "heads": 8, "vocabulary": 96, "length": 16, "tied": True}
    assert told["read"]["sizes"].items() >= sizes.items() and told["model"].items() >= sizes.items()
    assert told["read"]["optimizer"] == "momentum" and told["batch"] == 16 * 16
    best = told["strategies"][0]["memory"]
    assert best["moments"] == best["parameters"], "one moment"


def test_what_is_given_is_not_read():
    """A user who knows better says so; what is read is printed."""
    asked = ("--impl", "reference_impl", "--case", "data_parallel-jax-gpt", "--hardware", "h100", "--chips", 2)
    ended = invoke(*asked, "--heads", 4, "--batch-tokens", 64, "--optimizer", "adam")
    assert ended.exit_code == 0, ended.stderr
    assert ", 64 tokens a step, mixed, on 2 × h100" in ended.stdout
    assert "read of data_parallel-jax-gpt@data=8: parameters 107,136, layers 2, d_model 64" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "llama-8b", "--impl", "reference_impl"), "--impl reads sizes of a trainer: leave away the model"),
        (("--config", "llama-8b", "--case", "fsdp"), "--case reads sizes of a trainer: leave away the model"),
        (("--case", "fsdp"), "--case reads sizes of a trainer: leave away the model"),
        ((), "or --impl MODULE to read them of a trainer"),
    ],
)
def test_a_trainer_beside_a_model_is_an_error(arguments, message):
    """One of both has the sizes."""
    ended = invoke(*arguments, "--hardware", "h100", "--chips", 8)
    assert ended.exit_code == 2 and message in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    ("implementation", "named", "message"),
    [
        ("gone", None, "--impl gone: the module cannot be imported"),
        ("reference_impl", "warp", "--case warp: no case of reference_impl has it in its name, such as "),
        ("reference_impl", None, "--impl reference_impl has several models: expected --case with a part of"),
        ("tests.implementations.minimal", None, "its shapes cannot be seen: LookupError: it has no parameters"),
    ],
)
def test_a_trainer_that_cannot_be_read_is_an_error(implementation, named, message):
    """With what there is."""
    with pytest.raises(ProposalError, match=message):
        shapes_of(implementation, named)


def test_sizes_that_are_no_model_are_said(monkeypatch):
    """Of what they were read, and what counts instead."""
    told = {"case": "odd", "sizes": {"parameters": 10, "layers": 4, "d_model": 64, "d_ff": 256}, "batch": 8}
    monkeypatch.setattr(plan, "read_trainer", lambda *_: told | {"optimizer": "adam"})
    ended = invoke("--impl", "odd", "--hardware", "h100", "--chips", 8)
    assert ended.exit_code == 2 and "sizes read of odd: --params 10 contradicts the other sizes" in ended.stderr


def test_a_trainer_without_a_stack_has_its_parameters():
    """A perceptron: its batch are examples."""
    told = shapes_of("reference_impl", "fsdp-jax-mlp@data=8")
    assert told["case"] == "fsdp-jax-mlp@data=8" and told["moments"] == 1
    assert {len(shape) for shape in told["parameters"].values()} == {1, 2}
    assert all(dtype == "float32" or not shape[1:] for shape, dtype in told["batch"].values())
