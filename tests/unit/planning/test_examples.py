"""The worked examples of source 001, "Distributed Training Overview", planned at their own sizes, chips and meshes.

Each test says what the source claims, and what of it holds.
"""

import pytest

from meshproof.planning import memory, pipelining
from meshproof.planning.advice import decision_path
from meshproof.planning.layouts import Layout
from meshproof.planning.search import best_of, reckon
from tests.unit.planning.plans import plan, question

GB = 1e9


def test_resnet_50_fits_on_every_device():
    """Eight A100s, 32 images each, "100 % efficient": products take 8 times as long as gradients, which can hide."""
    asked = question("resnet-50", "a100", 8)
    found = reckon(asked)[0]
    assert found.layout == Layout(data=8) and found.layout.name == "data parallel"
    assert found.memory.state == pytest.approx(0.41 * GB, rel=0.01) and found.memory.total < 1.2 * GB
    assert found.mfu == pytest.approx(1) and found.times.ratio == pytest.approx(8.5, rel=0.02)
    assert found.math == pytest.approx(32 * 24.6e9 / 312e12)


def test_gpt_2_medium_is_tight_for_its_activations_alone():
    """Eight A100s of 40 GB, "fits but tight": state is 5.7 GB; 64 sequences at once take 78 GB more, 16 fit."""
    asked = question("gpt-2-medium", "a100", 8, memory=40 * GB)
    assert memory.training_bytes(asked.model.parameters) == pytest.approx(5.7 * GB, rel=0.01)
    whole = plan(asked, data=8)
    assert whole.memory.state == pytest.approx(5.7 * GB, rel=0.01) and not asked.fits(whole)
    assert whole.memory.activations + whole.memory.logits == pytest.approx(77.9 * GB, rel=0.01)
    best = reckon(asked)[0]
    assert best.layout == Layout(data=8, microbatches=4) and asked.fits(best)


def test_gpt_2_medium_on_four_by_two_is_slower():
    """Tried as "light tensor parallel, mesh (4, 2)": what two devices exchange is on the critical path, 17 % more."""
    asked = question("gpt-2-medium", "a100", 8, memory=40 * GB)
    alone, light = (best_of(asked, layout) for layout in (Layout(data=8), Layout(data=4, tensor=2)))
    assert asked.fits(light) and light.memory.state == pytest.approx(alone.memory.state / 2, rel=0.01)
    assert light.seconds / alone.seconds == pytest.approx(1.17, abs=0.01)


def test_gpt_3_is_not_600_mb():
    """1,024 A100s as (8, 4, 32), "about 600 MB per device": parameters in float32 are 0.70 GB, the state is 2.8 GB."""
    asked = question("gpt-3-175b", "a100", 1024)
    found = best_of(asked, Layout(3, pipeline=8, tensor=4, data=32))
    assert found.layout.devices == 1024 and asked.fits(found)
    assert found.memory.parameters == pytest.approx(0.70 * GB, rel=0.01)
    assert found.memory.state == pytest.approx(2.80 * GB, rel=0.01)
    assert found.memory.activations > 10 * found.memory.state and found.memory.total > 70 * GB, (
        "which the source does not mention"
    )


def test_gpt_3_needs_more_microbatches_than_fsdp_can_gather_for():
    """FSDP gathers in every microbatch: of 16, which keep 8 stages busy for 70 %, a step moves for 8 of 16 s."""
    asked = question("gpt-3-175b", "a100", 1024)
    fsdp, zero1 = (best_of(asked, Layout(zero, pipeline=8, tensor=4, data=32)) for zero in (3, 1))
    assert (fsdp.layout.microbatches, zero1.layout.microbatches) == (16, 48)
    assert fsdp.efficiency == pytest.approx(0.70, abs=0.005) and zero1.efficiency == pytest.approx(0.87, abs=0.005)
    assert pipelining.microbatches_for(8) == 63
    assert fsdp.comms == pytest.approx(7.8, abs=0.1) and fsdp.seconds == pytest.approx(16.1, abs=0.1)
    assert zero1.seconds == pytest.approx(12.9, abs=0.1) and zero1.mfu == pytest.approx(0.82, abs=0.01)


def test_vit_1b_fits_on_sixteen_with_a_gigabyte_of_state():
    """Told as "memory: 1 GB per device (16 GPUs)": true of parameters, gradients and moments."""
    asked = question("vit-1b", "a100", 16, memory=40 * GB)
    found = best_of(asked, Layout(3, data=16))
    assert found.memory.state == pytest.approx(1.0 * GB, rel=0.02) and asked.fits(found)


def test_vit_1b_in_four_stages_is_73_percent_busy():
    """Told as "4 stages, 8 microbatches: 73 %" on eight A100s of 40 GB: true, if layers are recomputed to fit."""
    asked = question("vit-1b", "a100", 8, memory=40 * GB)
    kept, recomputed = (plan(asked, pipeline=4, data=2, microbatches=8, recomputes=choice) for choice in (False, True))
    assert kept.efficiency == pytest.approx(8 / 11) and not asked.fits(kept) and asked.fits(recomputed)
    assert recomputed.mfu == pytest.approx(8 / 11 * 3 / 4, rel=0.01)
    best = reckon(asked)[0]
    assert best.layout.name == "data parallel", "the state of 16 GB fits on each device: neither option is needed"
    assert best.seconds < recomputed.seconds / 1.8


def test_fsdp_with_data_parallelism_is_hsdp():
    """Told as "(8, 16) = 128 devices": parameters split over 8, gradients all-reduced over 16."""
    asked = question("llama-8b", "h100", 128)
    found = best_of(asked, Layout(3, replica=16, data=8))
    assert found.layout.name == "HSDP" and found.layout.mesh == {"replica": 16, "data": 8}
    assert found.memory.state == pytest.approx(16 * 8.03e9 / 8, rel=0.01)
    data, replica = found.traffic
    assert not data.way.network and replica.way.network and found.bound is None


def test_four_stages_of_eight_tensors():
    """Told as "devices 0–7, 8–15, 16–23, 24–31": a stage is a host, and only hops leave it."""
    asked = question("llama-8b", "h100", 32)
    found = best_of(asked, Layout(pipeline=4, tensor=8))
    tensor, hops = found.traffic
    assert found.layout.devices == 32 and not tensor.way.network and hops.way.network
    assert asked.fits(found) and found.efficiency == pytest.approx(64 / 67)
    assert found.waiting / found.seconds == pytest.approx(0.37, abs=0.01), "what HSDP on the same 32 would hide"
    assert best_of(asked, Layout(3, replica=4, data=8)).seconds < found.seconds


def test_three_dimensions_of_1024():
    """Told as "(8, 8, 16)": GPT-3's state is 45 GB if only stages and tensors split it, and 24 GB with ZeRO-1."""
    asked = question("gpt-3-175b", "a100", 1024)
    plain, zero1 = (best_of(asked, Layout(zero, pipeline=8, tensor=8, data=16)) for zero in (0, 1))
    assert plain.layout.devices == 1024 and asked.fits(plain) and asked.fits(zero1)
    assert plain.memory.state == pytest.approx(44.7 * GB, rel=0.01)
    assert zero1.memory.state == pytest.approx(23.8 * GB, rel=0.01)
    assert plain.layout.microbatches == 96 and plain.efficiency == pytest.approx(96 / 103)
    assert plain.seconds == pytest.approx(12.9, abs=0.1)


@pytest.mark.parametrize(
    ("model", "chip", "chips", "answers"),
    [
        ("resnet-50", "a100", 8, ["Yes", "None", "Yes"]),
        ("gpt-2-medium", "a100", 8, ["Yes", "Yes"]),
        ("gpt-3-175b", "a100", 1024, ["No", "Yes", "Yes", "Yes"]),
        ("llama-70b", "v5p", 8192, ["No", "Yes", "Yes", "No", "Yes"]),
    ],
)
def test_the_way_to_a_strategy(model, chip, chips, answers):
    """The source's questions, "does it fit on one device?" and "is it sequential?", and those of bytes that it leaves
    out."""
    asked = question(model, chip, chips)
    *questions, so = decision_path(asked, reckon(asked))
    assert [line.partition("? ")[2].split()[0].strip(":,.") for line in questions] == answers
    assert so.startswith("So: ")
