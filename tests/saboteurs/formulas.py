"""Faults of the formulas by which a plan is made, each a mistake that was made somewhere: ROO-1 has their figures."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any

FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "axes_forgotten": ("rooflines.tokens_per_chip", lambda flops, bandwidth, axes=1: flops / bandwidth),
    "axes_multiply": ("rooflines.tokens_per_chip", lambda flops, bandwidth, axes=1: flops / bandwidth * axes),
    "one_way_links": ("rooflines.tokens_per_chip", lambda flops, bandwidth, axes=1: 2 * flops / bandwidth / axes),
    "chips_by_batch_alone": ("rooflines.most_chips", lambda B, flops, bandwidth, axes=1: B / (flops / bandwidth)),
    "intensity_not_squared": (
        "rooflines.tokens_per_chip_with_tensors",
        lambda F, flops, bandwidth, M_X, M_Y: 4 * flops / bandwidth / (M_X * M_Y * F),
    ),
    "axes_added": (
        "rooflines.tokens_per_chip_with_tensors",
        lambda F, flops, bandwidth, M_X, M_Y: 4 * (flops / bandwidth) ** 2 / ((M_X + M_Y) * F),
    ),
    "axes_swapped": ("rooflines.best_fsdp_shards", lambda B, F, N, M_X, M_Y: sqrt(B / F * M_Y / M_X * N)),
    "ratio_with_the_batch": (
        "rooflines.best_ratio",
        lambda B, F, N, flops, bandwidth, M_X, M_Y: B * F * M_X * M_Y / (4 * (flops / bandwidth) ** 2 * N),
    ),
    "tensors_by_the_batch": ("rooflines.most_tensor_shards", lambda F, flops, bandwidth, axes=1: flops / bandwidth),
    "width_inverted": ("rooflines.least_hidden_width", lambda Y, flops, bandwidth, axes=1: flops / bandwidth / Y),
    "backward_not_counted": ("rooflines.train_flops", lambda parameters, tokens: 2 * parameters * tokens),
    "recomputed_counted": ("rooflines.train_flops", lambda parameters, tokens: 8 * parameters * tokens),
    "utilization_multiplied": (
        "rooflines.training_seconds",
        lambda flops, chips, flops_per_chip, utilization=1.0: flops / (chips * flops_per_chip) * utilization,
    ),
    "utilization_of_one_chip": (
        "rooflines.utilization",
        lambda flops, chips, flops_per_chip, seconds: flops / flops_per_chip,
    ),
    "attention_halved": ("rooflines.attention_share", lambda D, length: length / (16 * D)),
    "one_moment": ("memory.adam_state_bytes", lambda parameters, parameter_bytes=2: parameters * 6),
    "memory_without_moments": ("memory.largest_replicated_model", lambda memory, bytes_per_parameter=10: memory / 2),
    "gradients_forgotten": ("memory.training_bytes", lambda parameters, width=4, copies=4: parameters * width * 3),
    "optimizer_forgotten": ("memory.largest_sharded_bytes", lambda memory, devices, copies=4: memory * devices),
    "of_one_device": ("memory.largest_sharded_model", lambda memory, devices, width=4, copies=4: memory / 16),
    "stages_shifted": (
        "memory.zero_bytes",
        lambda stage, parameters, devices, parameter=2, gradient=2, optimizer=12: (
            parameters * (parameter + gradient + optimizer / (devices if stage else 1))
        ),
    ),
    "saved_in_float32": (
        "memory.saved_bytes",
        lambda tokens, D, layers, per_layer=20, width=4: 4 * per_layer * tokens * D * layers,
    ),
    "gate_not_kept": (
        "memory.hidden_activation_bytes",
        lambda tokens, D, F, layers, width=2: width * layers * tokens * (D + F),
    ),
    "all_of_it_split": (
        "memory.transformer_activation_bytes",
        lambda tokens, D, length=0, heads=0, tensor=1, sequence_parallel=True: (
            tokens * D * (34 + 5 * heads * length / D) / tensor
        ),
    ),
    "no_gate": ("memory.hidden_parameters", lambda layers, D, F, matrices=3: layers * 2 * D * F),
    "keys_for_every_head": (
        "memory.attention_parameters",
        lambda layers, D, heads, kv_heads, head_width: layers * 4 * D * heads * head_width,
    ),
    "always_tied": ("memory.vocabulary_parameters", lambda vocabulary, D, tied=False: vocabulary * D),
    "bubble_as_if_stages_overlapped": ("pipelining.efficiency", lambda stages, microbatches, chunks=1: 1 - 1 / stages),
    "bubble_over_work": (
        "pipelining.bubble",
        lambda stages, microbatches, chunks=1: (stages - 1) / (chunks * microbatches),
    ),
    "one_microbatch_too_few": (
        "pipelining.microbatches_for",
        lambda stages, wanted=0.9, chunks=1: ceil(9 * (stages - 1)) - 1,
    ),
    "gather_over_one_axis": (
        "collectives.all_gather_seconds",
        lambda size, bandwidth, axes=1, devices=None, latency=0.0: size / bandwidth,
    ),
    "reduce_as_a_gather": (
        "collectives.all_reduce_seconds",
        lambda size, bandwidth, axes=1, devices=None, latency=0.0: size / bandwidth / axes,
    ),
    "all_to_all_as_a_gather": (
        "collectives.all_to_all_seconds",
        lambda size, bandwidth, axes=1, both_ways=True, devices=None, latency=0.0: size / bandwidth,
    ),
    "all_reduce_hides_behind_all_products": (
        "rooflines.data_parallel_efficiency",
        lambda tokens, devices, flops, bandwidth, axes=1, overlaps=True: min(
            1.0, 12 * tokens / flops / (8 / bandwidth / axes * (devices - 1) / devices)
        ),
    ),
    "no_latency": ("collectives.send_seconds", lambda size, bandwidth, hops=1, latency=0.0: size / bandwidth),
    "latency_in_milliseconds": (
        "collectives.latency_bound_bytes",
        lambda bandwidth, latency: bandwidth * latency * 1e3,
    ),
}
"""Name to the formula that it replaces, and what it is replaced with."""
