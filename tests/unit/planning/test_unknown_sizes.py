"""What a plan does where a size was not given: it says so, and counts nothing for it."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.planning.advice import unknown
from meshproof.planning.models import Model
from meshproof.planning.search import reckon
from tests.unit.planning.plans import plan, question


def test_parameters_alone_fit_where_fsdp_splits_them():
    """Nothing is known of a layer: what is gathered of one is not counted, and the plan says so. More microbatches
    would hold no less."""
    asked = question(Model("alone", 10e9), "a100", 8, batch=65_536, memory=40e9)
    found = {each.layout.name: each for each in reckon(asked)}
    assert asked.fits(found["FSDP"]) and found["FSDP"].memory.total == pytest.approx(20e9)
    assert {each.layout.microbatches for each in found.values()} == {1}
    assert any("--layers" in line for line in unknown(asked.model))


@pytest.mark.parametrize(("tied", "seconds"), [(True, 2.233), (False, 1.816)])
def test_a_head_is_what_it_is_told_to_be(tied, seconds):
    """By its sizes alone Gemma, of 2.5 billion parameters, would have room for a second matrix of 256,000 rows."""
    sizes = {"layers": 18, "d_model": 2048, "d_ff": 16384, "heads": 8, "kv_heads": 1, "vocabulary": 256_000}
    model = Model("gemma", 2.506e9, length=4096, tied=tied, **sizes)
    assert model.step_flops(1_048_576) / 8 / 9.89e14 == pytest.approx(seconds, rel=0.002)
    guessed = replace(model, tied=None)
    assert not guessed.is_tied and any("--tied" in line for line in unknown(guessed))
    assert not any("--tied" in line for line in unknown(model))


@pytest.mark.parametrize(
    ("parameters", "heads", "tied"),
    [(107_136, 8, True), (110_592, 8, False), (110_000, 8, False), (107_136, 0, False)],
)
def test_heads_leave_less_room_for_a_second_matrix(parameters, heads, tied):
    """Two layers of 64 × 256 with heads have 98,304 parameters, and two matrices of 96 rows 12,288; without heads, keys
    and values may be shared and smaller."""
    sizes = {"layers": 2, "d_model": 64, "d_ff": 256, "vocabulary": 96, "length": 16}
    assert Model("gpt", parameters, heads=heads, **sizes).is_tied == tied


def test_the_table_of_a_tied_head_is_used_whole():
    """Where it is larger than a layer."""
    asked = question("gpt-2-medium", "h100", 8)
    assert plan(asked, data=8).memory.layer_in_use == 50_257 * 1_024 * 2


@pytest.mark.parametrize("size", ["layers", "d-model", "d-ff", "heads", "kv-heads", "vocab", "sequence"])
@pytest.mark.parametrize("model", ["--config llama-8b", "--params 8.03e9 --batch-tokens 4e6"])
def test_a_size_of_zero_is_refused(model, size):
    """It is not taken for one that was not given."""
    asked = ["plan", *model.split(), "--hardware", "h100", "--chips", "8", f"--{size}", "0"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 2 and f"Invalid value for '--{size}'" in ended.stderr, ended.stderr
