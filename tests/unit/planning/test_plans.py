"""Plans hold what the formulas say, move what the book's strategies move, and rank as their order says."""

from dataclasses import replace

import pytest

from meshproof.planning import memory, rooflines
from meshproof.planning.costs import Plan
from meshproof.planning.document import answer, document
from meshproof.planning.layouts import Layout, divisors, layouts, way_of
from meshproof.planning.models import Model, PlanError, find_model, models
from meshproof.planning.search import fewest_chips, reckon
from meshproof.targets import find_chip
from tests.unit.planning.plans import plan, question

LLAMA = find_model("llama-70b")
GPT3 = find_model("gpt-3-175b")


@pytest.mark.parametrize("name", models())
def test_named_models_are_what_they_say(name):
    """Their widths give their parameters, to what norms, biases and positions take."""
    model = find_model(name)
    assert len(model.source) > 20 and model.batch >= 1
    if model.is_stack:
        attention = 2 * model.d_model * (model.d_model + model.kv_width)
        hidden = (3 if model.is_gated else 2) * model.d_model * model.d_ff
        counted = model.layers * (attention + hidden) + model.embedding
        assert counted == pytest.approx(model.parameters, rel=0.01), name
        assert model.is_gated == name.startswith("llama")


@pytest.mark.parametrize("zero", range(4))
def test_state_is_that_of_zero(zero):
    """Parameters, gradients and moments of each stage are those of `memory.zero_bytes`."""
    asked = question("llama-8b", "h100", 64)
    held = plan(asked, zero=zero, data=64).memory
    assert held.state == pytest.approx(memory.zero_bytes(zero, 8.03e9, 64, 4, 4, 8))


def test_a_ladder_falls():
    """Each stage of ZeRO holds less than the one before."""
    held = [plan(question("gpt-2-medium", "a100", 8), zero=zero, data=8).memory.total for zero in range(4)]
    assert held == sorted(held, reverse=True) and len(set(held)) == 4


def test_recomputing_keeps_inputs_and_one_layer():
    """40 times less of 40 layers, but for one layer; a third more products."""
    asked = question("llama-70b", "v5p", 64)
    kept, recomputed = (plan(asked, zero=3, data=64, recomputes=choice) for choice in (False, True))
    tokens = LLAMA.batch / 64
    assert kept.memory.activations == pytest.approx(2 * tokens * 80 * LLAMA.saved_numbers)
    assert recomputed.memory.activations == pytest.approx(2 * tokens * (80 * 8192 + LLAMA.saved_numbers))
    assert recomputed.math == pytest.approx(4 / 3 * kept.math)


def test_activations_are_the_published_formula():
    """Korthikanti's 34 bytes, less 2 of dropout's masks: a GPT's 16 numbers of width D."""
    assert GPT3.saved_numbers == 16 * GPT3.d_model
    assert memory.transformer_activation_bytes(1, GPT3.d_model) == (2 * 16 + 2) * GPT3.d_model


def test_a_pipeline_holds_a_microbatch_for_each_stage():
    """1F1B: as many as there are stages, whatever their number; and microbatches fewer than stages are all of them."""
    asked = question("gpt-3-175b", "v5p", 64)
    few, many, starved = (
        plan(asked, pipeline=8, data=8, microbatches=count).memory.activations for count in (8, 64, 2)
    )
    assert few == pytest.approx(8 * many) and starved == pytest.approx(few)


def test_logits_are_split_by_tensors():
    """Logits and their gradient in float32, of the tokens of one microbatch."""
    held = plan(question("llama-70b", "v5p", 64), zero=3, data=16, tensor=4, microbatches=8).memory.logits
    assert held == pytest.approx(LLAMA.batch / 16 / 8 * 128256 / 4 * 8)


def test_what_is_not_known_is_not_zero():
    """No vocabulary, no logits; no layers, no activations: unknown, and said."""
    bare = Model("bare", 7e9)
    assert plan(question(bare, "v5p", 8, 4096), data=8).memory.activations is None
    told = document(answer(question(Model("deep", 175e9, 96, 12288, 49152), "v5p", 64, 4194304)))
    assert all(each["memory"]["logits"] is None for each in told["strategies"])
    assert any(line.startswith("Logits are not counted") for line in told["warnings"])


def test_fsdp_is_bound_where_its_law_says():
    """At α over three axes: it gathers twice and scatters once where a step's products are 4/3 of those of the law."""
    wide = Model("wide", 48 * 2 * 8192 * 32768 + 48 * 4 * 8192**2, 48, 8192, 32768)
    asked = question(wide, "v5p", 4096, 4096 * 850)
    bound = rooflines.tokens_per_chip(asked.peak, asked.chip.link_bandwidth, 3)
    found = plan(asked, zero=3, data=4096, recomputes=True)
    assert found.times.ratio == pytest.approx(4 / 3 * 850 / bound, rel=0.01)


def test_mixed_moves_what_its_law_says():
    """Of the book's layer, two products, X = 256 and Y = 4: parameters three times, activations of two such layers."""
    X, Y, layers, D, F, tokens = 256, 4, 48, 8192, 65536, 1024 * 512
    wide = Model("wide", layers * (2 * D * F + 4 * D**2), layers, D, F)
    asked = question(wide, "v5p", X * Y, tokens)
    tensor, data = plan(asked, zero=3, data=X, tensor=Y, recomputes=True).traffic
    figures = (asked.peak, asked.chip.link_bandwidth)
    whole = rooflines.fsdp_tensor_parallel(tokens, D, F, X, Y, *figures, 2, 1).comms
    parameters = rooflines.fsdp(tokens, D, F, X, *figures, 2).comms / Y
    attention = wide.parameters / (layers * 2 * D * F)
    assert data.seconds == pytest.approx(3 * layers * parameters * attention * (X - 1) / X)
    assert tensor.seconds == pytest.approx(layers * 11 / 2 * (whole - parameters) * (Y - 1) / Y)


def test_what_moves_is_what_the_book_moves():
    """Bytes of a step: gradients twice; FSDP thrice its parameters; a replica's gradients; activations at borders."""
    asked = question("llama-8b", "h100", 64)
    size = 8.03e9 * 2
    assert plan(asked, data=64).traffic[0].bytes == pytest.approx(2 * size)
    assert plan(asked, zero=1, data=64).traffic[0].bytes == pytest.approx(3 * size), "parameters in float32"
    assert plan(asked, zero=2, data=64, microbatches=4).traffic[0].bytes == pytest.approx(6 * size)
    assert plan(asked, zero=3, data=64, microbatches=4).traffic[0].bytes == pytest.approx(8 * size)
    data, replica = plan(asked, zero=3, data=8, replica=8, recomputes=True).traffic
    assert data.bytes == pytest.approx(3 * size - 2 * 2 * 128256 * 4096)
    assert replica.bytes == pytest.approx(2 * 2 * size / 8), "gradients of a shard, in float32"
    for recomputes, exchanges in ((False, 8), (True, 11)):
        [tensor] = plan(question("llama-8b", "h100", 8), tensor=8, recomputes=recomputes).traffic
        assert tensor.bytes == pytest.approx(32 * exchanges * LLAMA.batch * 4096 * 2)
    [hops] = plan(question("llama-8b", "h100", 8), pipeline=8, microbatches=64).traffic
    assert hops.bytes == pytest.approx(2 * LLAMA.batch * 4096 * 2)


@pytest.mark.parametrize(
    ("layout", "axis", "bandwidth", "network"),
    [
        (Layout(data=8), "data", 450e9, False),
        (Layout(data=64), "data", 400e9, True),
        (Layout(data=8, tensor=8), "tensor", 450e9, False),
        (Layout(data=8, tensor=8), "data", 50e9, True),
        (Layout(data=16, tensor=4), "data", 100e9, True),
        (Layout(3, replica=8, data=8), "data", 450e9, False),
        (Layout(3, replica=8, data=8), "replica", 50e9, True),
        (Layout(pipeline=2, tensor=8), "pipeline", 50e9, True),
        (Layout(pipeline=16), "pipeline", 50e9, True),
        (Layout(pipeline=8), "pipeline", 450e9, False),
    ],
)
def test_what_leaves_a_host_takes_the_network(layout, axis, bandwidth, network):
    """Neighbours of H100s share tensors; devices of a host send at the same time, each over its own adapter. Of eight
    stages in a host only the last one's sends to the next host."""
    way = way_of(layout, axis, find_chip("h100"))
    assert (way.bandwidth, way.axes, way.network) == (bandwidth, 1, network)


@pytest.mark.parametrize(
    ("layout", "axis", "axes"),
    [
        (Layout(data=512), "data", 3),
        (Layout(tensor=64), "tensor", 3),
        (Layout(data=2), "data", 1),
        (Layout(data=128, tensor=4), "data", 2),
        (Layout(data=128, tensor=4), "tensor", 1),
        (Layout(pipeline=4, data=32, tensor=4), "data", 1),
    ],
)
def test_a_torus_gives_its_axes(layout, axis, axes):
    """Alone an axis has all three, beside others data has what they leave."""
    assert way_of(layout, axis, find_chip("v5p")).axes == axes


def test_slices_are_joined_by_the_network():
    """512 v5e are two slices: the 256 of each send at the same time."""
    way = way_of(Layout(data=512), "data", find_chip("v5e"))
    assert way.network and way.bandwidth == min(2 * 9.0e10, 256 * 3.125e9)


def test_every_mesh_splits_evenly():
    """Devices, batch, layers, widths and heads; each strategy on each mesh once."""
    asked = question("llama-70b", "h100", 64)
    found = list(layouts(LLAMA, 64, asked.batch))
    assert len(set(found)) == len(found) > 100
    for layout in found:
        assert layout.devices == 64 and 512 % layout.ways == 0 and 80 % layout.pipeline == 0
        assert all(size % layout.tensor == 0 for size in (8192, 28672, 64))
    assert divisors(12) == (1, 2, 3, 4, 6, 12)


def test_plans_are_ranked():
    """What fits first, the fastest first; a step takes at least what its products do, and both bounds hold it."""
    asked = question("llama-70b", "h100", 64)
    plans = reckon(asked)
    fitting = [asked.fits(each) for each in plans]
    assert fitting == sorted(fitting, reverse=True) and any(fitting) and not all(fitting)
    ranked = [each.order for each in plans if asked.fits(each)]
    assert ranked == sorted(ranked)
    for each in plans:
        assert each.times.least <= each.seconds * (1 + 1e-9) and each.seconds <= each.times.most * (1 + 1e-9)
        assert 0 < each.mfu <= 1 and each.memory.total == pytest.approx(sum(each.memory.terms.values()))


def test_microbatches_are_as_few_as_fit():
    """One fewer would not fit; recomputing is chosen where it is faster."""
    asked = question("llama-70b", "h100", 64)
    best = next(each for each in reckon(asked) if each.layout.name == "FSDP")
    assert best.layout.microbatches == 4 and best.layout.recomputes and asked.fits(best)
    assert not asked.fits(asked.plan(replace(best.layout, microbatches=2)))


def test_float32_takes_twice_the_time_on_a_gpu_alone():
    """TF32 has half the figure; what moves is twice as wide."""
    mixed, float32 = (plan(question("llama-8b", "h100", 8, precision=name), data=8) for name in ("mixed", "float32"))
    assert float32.math == pytest.approx(2 * mixed.math) and float32.comms == pytest.approx(2 * mixed.comms)
    on_tpu = [plan(question("llama-8b", "v5p", 8, precision=name), data=8).math for name in ("mixed", "float32")]
    assert on_tpu[0] == on_tpu[1]


def test_a_small_microbatch_reads_its_weights():
    """Of so few tokens products take as long as weights take to be read."""
    asked = question("llama-8b", "v5e", 1, 8192 * 16)
    few = plan(asked, microbatches=16)
    alone = replace(asked, batch=16, model=replace(asked.model, length=0))  # one token in each of 16
    tiny = alone.plan(Layout(microbatches=16))
    assert few.math == pytest.approx(asked.model.step_flops(asked.batch) / asked.peak)
    assert tiny.math == pytest.approx(16 * 3 * 8.03e9 * 2 / asked.chip.memory_bandwidth)


def test_the_fewest_chips_hold_it():
    """And the next fewer do not."""
    asked = question("llama-70b", "h100", 8)
    chips = fewest_chips(asked)
    assert chips == 16 and not any(map(asked.fits, reckon(asked)))
    assert question("llama-70b", "h100", chips).fits(reckon(question("llama-70b", "h100", chips))[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: find_model("lama"), "--config lama: no model of this name; expected one of resnet-50, gpt-2-medium"),
        (lambda: Model("x", 0), "expected sizes above 0"),
        (lambda: Model("x", 1e9, layers=4), "--layers without --d-model and --d-ff: give all of them"),
        (lambda: Model("x", 1e9, 4, 1000, 4000, heads=3), "--heads 3: expected a divisor of --d-model 1000, such as 2"),
        (lambda: Model("x", 1e9, heads=8, kv_heads=3), "--kv-heads 3 does not divide --heads 8"),
        (lambda: Model("x", 1e9, kv_heads=8), "--kv-heads 8 without --heads: give both"),
        (lambda: Model("x", 7e9, 96, 12288, 49152), r"--params 7e\+09 contradicts .* have 1.45e\+11 to 2.319e\+11"),
        (lambda: Model("x", 700e9, 96, 12288, 49152), r"--params 7e\+11 contradicts"),
        (lambda: question("llama-70b", "h100", 0), "--chips 0, --batch-tokens 4194304: expected both above 0"),
        (lambda: question("llama-70b", "h100", 8, 100_000), "nearest are 98,304 and 106,496"),
        (lambda: question("llama-70b", "h100", 8, 100), "sequences of 8,192 tokens; the nearest are 8,192; --sequence"),
        (lambda: reckon(question("llama-70b", "h100", 7)), "no mesh of 7 devices splits a batch of 512 sequences"),
    ],
)
def test_what_cannot_be_planned_is_said(make, message):
    """With what was given, what was expected, and what would do."""
    with pytest.raises(PlanError, match=message):
        make()


def test_no_mesh_is_answered_with_what_would_do():
    """Batches around it, and the chips below that split this one."""
    with pytest.raises(PlanError) as refused:
        reckon(question("llama-70b", "h100", 7))
    told = str(refused.value)
    assert "batches of 4,186,112 or 4,243,456 tokens would be split, or 5 chips split this one" in told
    assert all(reckon(question("llama-70b", "h100", 7, batch)) for batch in (4_186_112, 4_243_456))
    assert reckon(question("llama-70b", "h100", 5))
    with pytest.raises(PlanError, match="or 524,288 chips split this one"):  # of a million, counted in a second
        reckon(question("llama-8b", "h100", 999_983))


def test_a_layout_is_called_by_its_name():
    """As a practitioner calls it."""
    names = {
        Layout(): "single device",
        Layout(data=8): "data parallel",
        Layout(2, data=8): "ZeRO-2",
        Layout(3, data=8): "FSDP",
        Layout(3, data=8, replica=2): "HSDP",
        Layout(3, data=8, tensor=2): "FSDP + tensor parallel",
        Layout(pipeline=4, tensor=2): "pipeline + tensor parallel",
        Layout(1, pipeline=4, data=2, tensor=2): "pipeline + ZeRO-1 + tensor parallel",
    }
    assert {layout: layout.name for layout in names} == names
    assert Layout(pipeline=4, tensor=2).spelled == "pipeline=4, tensor=2" and Layout().spelled == "1"


def test_a_bound_is_named():
    """The axis that moves for longest, where products do not hide it."""
    asked = question("llama-8b", "h100", 64, 64 * 8192)
    slow = replace(asked, chip=replace(asked.chip, network_bandwidth=1.25e9))
    found: Plan = plan(slow, zero=3, data=64)
    assert found.bound and found.bound.axis == "data" and found.bound.way.network
    assert plan(asked, zero=3, data=64).bound is None
