"""What of a plan is handed to a compiler: the target of its chips, the strategies that fit, one microbatch."""

import pytest

from meshproof.planning.layouts import Layout
from meshproof.planning.models import PlanError
from meshproof.planning.proposing import Piece, chosen, pieces, proposal, squarest, target_of
from meshproof.planning.search import reckon
from meshproof.targets import read_target
from tests.unit.planning.plans import question


@pytest.mark.parametrize(
    ("chip", "chips", "target"),
    [
        ("h100", 1, "gpu:h100:1"),
        ("h100", 8, "gpu:h100:8"),
        ("h100", 64, "gpu:h100:8x8"),
        ("gb200", 72, "gpu:gb200:72"),
        ("v5e", 8, "tpu:v5e:2x4"),
        ("v5e", 256, "tpu:v5e:16x16"),
        ("v5p", 1024, "tpu:v5p:8x8x16"),
        ("tpu7x", 64, "tpu:tpu7x:4x4x4"),
    ],
)
def test_chips_are_a_target(chip, chips, target):
    """Hosts full of GPUs, or a slice of TPUs, that `--target` knows."""
    assert target_of(question("llama-8b", chip, chips, 8192 * 1024)) == target == read_target(target).name


@pytest.mark.parametrize(
    ("chip", "chips", "message"),
    [
        ("h100", 12, "12 × h100 are no whole hosts of 8: expected a multiple of it, or fewer"),
        ("v5e", 3, "3 × v5e make no slice: 1x3 cannot be made of hosts of 2x2 chips; .*; change --chips"),
        ("v5e", 512, "512 × v5e are more than a slice of 256, and what leaves a slice is in no program"),
    ],
)
def test_chips_that_no_target_has_are_refused(chip, chips, message):
    """With both numbers."""
    with pytest.raises(PlanError, match=message):
        target_of(question("llama-8b", chip, chips, 8192 * 1024))


def test_factors_are_as_close_as_they_can_be():
    """The smallest first; a prime is a line."""
    assert squarest(12, 2) == (3, 4) and squarest(16, 3) == (2, 2, 4) and squarest(7, 2) == (1, 7)


def test_strategies_that_fit_are_tried_and_one_is_by_its_name():
    """The fastest first; one that is named need not fit; an unknown one is an error that lists them."""
    asked = question("llama-70b", "h100", 64, 524288)
    plans = reckon(asked)
    assert [plan.seconds for plan in chosen(asked, plans, None)] == sorted(
        plan.seconds for plan in chosen(asked, plans, None)
    )
    assert all(map(asked.fits, chosen(asked, plans, None)))
    [named] = chosen(asked, plans, "data parallel")
    assert named.layout.name == "data parallel" and not asked.fits(named)
    with pytest.raises(PlanError, match=r"--strategy zero-4: no plan is called so; expected one of .*FSDP"):
        chosen(asked, plans, "zero-4")


def test_one_microbatch_is_compiled():
    """With its share of the batch; the other sizes are the model's."""
    asked = question("llama-8b", "h100", 8, 64 * 8192)
    [piece] = pieces([asked.plan(Layout(3, data=8, microbatches=4, recomputes=True))], asked.batch)
    assert piece == Piece(Layout(3, data=8, recomputes=True), 16 * 8192, 4)
    told = proposal(asked, piece, "adam")
    assert told["examples"] == 16 and told["mesh"] == {"data": 8} and told["strategy"] == "FSDP"
    assert told["layer_parameters"] == asked.model.layer and told["recomputes"]
