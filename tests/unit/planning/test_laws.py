"""The formulas agree with each other, and with the book's schedules, where they must."""

import warnings

import pytest

from meshproof.planning import collectives, memory, pipelining, rooflines
from meshproof.planning.rooflines import Times
from reference_impl.theory.schedules import gpipe, interleaved, one_forward_one_backward

C, W = 4.59e14, 1.8e11
B, D, F = 4_194_304, 8192, 28672


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("law", [rooflines.data_parallel, rooflines.fsdp])
def test_data_parallelism_is_bound_where_its_bound_is(law, axes):
    """T_math = T_comms at exactly α/axes tokens a chip, in the backward pass of DP as in the forward pass of FSDP."""
    tokens = rooflines.tokens_per_chip(C, W, axes)
    assert law(64 * tokens, D, F, 64, C, W, axes).ratio == pytest.approx(1)
    assert law(128 * tokens, D, F, 64, C, W, axes).ratio == pytest.approx(2)


@pytest.mark.parametrize(("tokens", "efficient"), [(2, 1.0), (1, 1.0), (0.5, 0.6)])
def test_data_parallelism_is_efficient_while_its_reduction_hides(tokens, efficient):
    """Of very many devices with C/W tokens each all hides; with half of it 1.5 / (1.5 + 2 − 1) of the time is left."""
    bound = tokens * rooflines.tokens_per_chip(C, W)
    assert rooflines.data_parallel_efficiency(bound, 1e9, C, W) == pytest.approx(efficient)
    backward = rooflines.data_parallel(bound * 1e9, D, F, 1e9, C, W)
    alone = 1.5 * backward.math / (1.5 * backward.math + backward.comms)
    assert rooflines.data_parallel_efficiency(bound, 1e9, C, W, overlaps=False) == pytest.approx(alone)
    assert rooflines.data_parallel_efficiency(bound, 1, C, W, overlaps=False) == 1


@pytest.mark.parametrize("axes", [1, 2])
def test_tensors_are_bound_where_their_bound_is(axes):
    """At Y = axes·F/α, whatever the batch; F = Y·α/axes is the same."""
    shards = rooflines.most_tensor_shards(F, C, W, axes)
    for batch in (B, 2 * B):
        assert rooflines.tensor_parallel(batch, D, F, shards, C, W, axes).ratio == pytest.approx(1)
    assert rooflines.least_hidden_width(shards, C, W, axes) == pytest.approx(F)


def test_the_best_mesh_is_the_best():
    """X_opt moves less than any neighbour, and its ratio is `best_ratio`, which is 1 at the batch that it needs."""
    N, axes = 8960, {"M_X": 2, "M_Y": 1}
    best = rooflines.best_fsdp_shards(B, F, N, **axes)
    ratio = rooflines.fsdp_tensor_parallel(B, D, F, best, N / best, C, W, **axes).ratio
    assert ratio == pytest.approx(rooflines.best_ratio(B, F, N, C, W, **axes))
    for other in (best / 1.1, best * 1.1):
        assert rooflines.fsdp_tensor_parallel(B, D, F, other, N / other, C, W, **axes).ratio < ratio
    needed = N * rooflines.tokens_per_chip_with_tensors(F, C, W, **axes)
    assert rooflines.best_ratio(needed, F, N, C, W, **axes) == pytest.approx(1)


def test_mixed_is_each_of_its_parts_alone():
    """With Y = 1 the parameters of FSDP move, with X = 1 the activations of tensor parallelism."""
    mixed = rooflines.fsdp_tensor_parallel(B, D, F, 64, 1, C, W, 1, 1)
    activations = 4 * B * D / (64 * W)
    assert mixed.comms - activations == pytest.approx(rooflines.fsdp(B, D, F, 64, C, W).comms)
    assert mixed.math == pytest.approx(rooflines.fsdp(B, D, F, 64, C, W).math)


@pytest.mark.parametrize(("devices", "both_ways"), [(8, True), (16, True), (8, False), (16, False)])
def test_an_exchange_loads_each_link_of_a_ring_as_its_formula_says(devices, both_ways):
    """Counted message by message: each device sends 1/n² of the tensor to each other, the shorter way where it may."""
    size, load = 1e9, 0.0
    for hops in range(1, devices):
        shorter = min(hops, devices - hops) if both_ways else hops
        load += size / devices**2 * shorter / (2 if both_ways else 1)
    seconds = load / (W / 2) if both_ways else load / W
    found = collectives.all_to_all_seconds(size, W, both_ways=both_ways, devices=devices)
    assert found == pytest.approx(seconds)
    farthest = devices / 2 if both_ways else devices - 1
    assert collectives.all_to_all_seconds(1, W, both_ways=both_ways, devices=devices, latency=1e-6) == pytest.approx(
        farthest * 1e-6
    )


def test_times_are_bounds():
    """At least the longer of the two, at most both; without communication the ratio has no bound."""
    times = Times(3.0, 2.0)
    assert (times.least, times.most, times.ratio) == (3.0, 5.0, 1.5)
    assert Times(1.0, 0.0).ratio == float("inf")


def test_operations_add_up():
    """Recomputing costs a forward pass more; attention is the share that it is said to be, with F = 4D and a gate."""
    assert rooflines.recomputed_flops(7e9, 10) == pytest.approx(4 / 3 * rooflines.train_flops(7e9, 10))
    layer = memory.hidden_parameters(1, D, 4 * D) + memory.attention_parameters(1, D, 64, 64, 128)
    share = rooflines.attention_flops(1, D, 4096, 1) / rooflines.train_flops(layer, 1)
    assert share == pytest.approx(rooflines.attention_share(D, 4096))


def test_a_collective_takes_its_latency():
    """A small one as long as its hops; a large one (n − 1)/n of its bytes, with and without."""
    assert collectives.all_gather_seconds(1, W, devices=64, latency=1e-6) == pytest.approx(32e-6)
    assert collectives.all_gather_seconds(8e9, W, devices=4) == pytest.approx(6e9 / W)
    assert collectives.reduce_scatter_seconds(8e9, W, 2) * 2 == collectives.all_reduce_seconds(8e9, W, 2)
    assert collectives.ring_hops(4) == 2


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("microbatches", [8, 24])
def test_pipelines_are_as_idle_as_the_books(stages, microbatches):
    """The formula counts what the schedules of the book count."""
    with warnings.catch_warnings(action="ignore"):
        schedules = [(make(stages, microbatches), 1) for make in (gpipe, one_forward_one_backward)]
        schedules.append((interleaved(stages, microbatches, 3), 3))
    for schedule, chunks in schedules:
        assert schedule.efficiency == pytest.approx(pipelining.efficiency(stages, microbatches, chunks))
        assert 1 - schedule.efficiency == pytest.approx(pipelining.bubble(stages, microbatches, chunks))


@pytest.mark.parametrize("stages", range(1, 20))
@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.9, 0.95])
def test_microbatches_are_the_fewest(stages, wanted):
    """One fewer is not enough."""
    needed = pipelining.microbatches_for(stages, wanted)
    assert pipelining.efficiency(stages, needed) >= wanted - 1e-12
    assert needed == 1 or pipelining.efficiency(stages, needed - 1) < wanted


def test_no_stage_of_zero_is_guessed():
    """There are three, and none."""
    with pytest.raises(ValueError, match=r"ZeRO stage 4: expected 0 \(data parallel\), 1, 2 or 3"):
        memory.zero_bytes(4, 1, 1)
