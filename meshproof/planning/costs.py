"""What a layout holds on a device, and how long its step takes: in bytes and seconds, by formulas.

A device takes b = B / (replica · data) tokens a step, in microbatches of t. One layer is computed at a time. Between
layers activations are split by the tensor axis too (sequence parallelism), products are in bfloat16, and attention
keeps no scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from meshproof.planning import collectives, pipelining, rooflines
from meshproof.planning.layouts import Layout, Way, way_of
from meshproof.planning.memory import FLOAT32, Precision
from meshproof.planning.models import Model
from meshproof.targets import Chip

CRITICAL = ("tensor", "pipeline")
"""Axes whose collectives stand on the critical path: Scaling Book, "How to parallelize a Transformer"."""

EXCHANGES, RECOMPUTED = 8, 3
"""All-gathers and reduce-scatters of [t, D] that the tensor axis runs for a layer of two blocks: forward and backward;
and again where it is recomputed, but for the one that ends the layer, whose output the backward pass does not need."""

MOVED = ("gradients", "gradients and parameters", "gradients and parameters", "parameters and gradients")
"""What the data axis moves, by the stage of ZeRO, in the order in which it moves."""

READ = 3
"""How often a microbatch goes through its weights: forward, for the gradients of its input, and for their own."""


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest device, by term. ``None``: cannot be known from the sizes that were given."""

    parameters: float
    gradients: float
    moments: float
    activations: float | None
    layer_in_use: float
    logits: float | None

    @property
    def terms(self) -> dict[str, float]:
        """Those that are known, the largest first."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return dict(sorted(((k, v) for k, v in known.items() if v is not None), key=lambda term: -term[1]))

    @property
    def state(self) -> float:
        """Parameters, gradients and moments: what no smaller microbatch makes less."""
        return self.parameters + self.gradients + self.moments

    @property
    def total(self) -> float:
        """Of all terms that are known."""
        return self.state + self.layer_in_use + (self.activations or 0.0) + (self.logits or 0.0)


@dataclass(frozen=True)
class Traffic:
    """What one mesh axis moves in a step: ``bytes`` of logical tensors, and ``seconds`` on its way."""

    axis: str
    moves: str
    bytes: float
    seconds: float
    way: Way


@dataclass(frozen=True)
class Plan:
    """A layout with its costs: ``math`` are seconds of products, idle stages included; ``flops`` are the model's own.

    Tensor shards and stages wait for what they exchange; what the other axes move hides behind products. Schedules can
    do better, and compilers worse: `times` has both bounds.
    """

    layout: Layout
    memory: Memory
    math: float
    traffic: tuple[Traffic, ...]
    efficiency: float
    flops: float
    peak: float

    @property
    def comms(self) -> float:
        """Seconds of all communication, one after the other."""
        return sum(line.seconds for line in self.traffic)

    @property
    def times(self) -> rooflines.Times:
        """A step takes at least the longer of both, at most both."""
        return rooflines.Times(self.math, self.comms)

    @property
    def waiting(self) -> float:
        """Seconds of communication on the critical path."""
        return sum(line.seconds for line in self.traffic if line.axis in CRITICAL)

    @property
    def seconds(self) -> float:
        """Of a step, as predicted."""
        return max(self.math, self.comms - self.waiting) + self.waiting

    @property
    def mfu(self) -> float:
        """As predicted."""
        return rooflines.utilization(self.flops, self.layout.devices, self.peak, self.seconds)

    @property
    def bound(self) -> Traffic | None:
        """The axis that moves for longest; ``None`` if products take longer than all that moves."""
        return max(self.traffic, key=lambda line: line.seconds) if self.comms > self.math else None

    @property
    def order(self) -> tuple[float, ...]:
        """Faster plans come first, to three digits; then those with less to hide, the simpler, those that hold less."""
        times = (float(f"{seconds:.3g}") for seconds in (self.seconds, self.times.most))
        return *times, len(self.layout.mesh), self.layout.zero, self.memory.total


def memory_of(model: Model, layout: Layout, batch: int, precision: Precision) -> Memory:
    """Bytes of the fullest device: with pipelines the first stage's activations and the last one's logits."""
    own = stage_parameters(model, layout)
    split = [layout.data if layout.zero >= least else 1 for least in (3, 2, 1)]
    widths = (precision.parameter, precision.gradient, precision.moments)
    parameters, gradients, moments = (own * width / ways for width, ways in zip(widths, split, strict=True))
    tokens = batch / layout.ways / layout.microbatches
    logits = tokens * model.vocabulary / layout.tensor * 2 * FLOAT32 if model.vocabulary else None
    return Memory(
        parameters,
        gradients,
        moments,
        activation_bytes(model, layout, tokens, precision),
        in_use_bytes(model, layout, precision),
        0.0 if model.flops else logits,
    )


def in_use_bytes(model: Model, layout: Layout, precision: Precision) -> float:
    """Parameters as they are computed with, where these are not those at rest; for FSDP one layer's gradient too.

    FSDP that recomputes gathers a layer at a time, and again in the backward pass. One that does not keeps what it has
    gathered until then: so the book's pages do, and compilers leave it so. 0 where layers are not known.
    """
    if not model.is_stack:
        return 0.0
    table = model.embedding if model.is_tied else model.embedding / 2
    layer = max(model.layer, table) / layout.tensor * precision.moved
    if layout.zero < 3:
        return layer if precision.moved != precision.parameter else 0.0
    return layer + (layer if layout.recomputes else stage_parameters(model, layout) * precision.moved)


def activation_bytes(model: Model, layout: Layout, tokens: float, precision: Precision) -> float | None:
    """What waits for the backward pass: of all layers, or their inputs and one layer's.

    A stage of a pipeline has as many microbatches under way as there are stages (1F1B).
    """
    if not model.saved_numbers:
        return None
    numbers = tokens / layout.tensor * precision.moved
    under_way = min(layout.pipeline, layout.microbatches)
    layers = (model.layers or 1) / layout.pipeline * under_way
    if layout.recomputes:
        return numbers * (layers * model.d_model + model.saved_numbers)
    return numbers * layers * model.saved_numbers


def stage_parameters(model: Model, layout: Layout) -> float:
    """Of the stage that has most, on each of its tensor shards."""
    ends = model.embedding if layout.pipeline == 1 or model.is_tied else model.embedding / 2
    return (model.layer * (model.layers or 1) / layout.pipeline + ends) / layout.tensor


def peak_of(chip: Chip, precision: Precision) -> float:
    """Operations per second of a device's products. A chip without a torus is a GPU."""
    return chip.flops * (precision.share_on_gpu if chip.axes == 1 else 1)


def plan_of(model: Model, layout: Layout, batch: int, chip: Chip, precision: Precision, mfu: float = 1.0) -> Plan:
    """A layout with its memory and its times, where a device reaches this share of its peak.

    Products take at least as long as their weights from memory.
    """
    flops = model.step_flops(batch)
    peak = peak_of(chip, precision)
    efficiency = pipelining.efficiency(layout.pipeline, layout.microbatches)
    done = flops * rooflines.recomputed_flops(1, 1) / rooflines.train_flops(1, 1) if layout.recomputes else flops
    read = READ * layout.microbatches * stage_parameters(model, layout) * precision.moved / chip.memory_bandwidth
    math = max(rooflines.training_seconds(done, layout.devices, peak, mfu), read) / efficiency
    traffic = tuple(traffic_of(model, layout, batch, chip, precision, efficiency))
    memory = memory_of(model, layout, batch, precision)
    return Plan(layout, memory, math, traffic, efficiency, flops, peak)


def traffic_of(
    model: Model, layout: Layout, batch: int, chip: Chip, precision: Precision, efficiency: float
) -> Iterator[Traffic]:
    """What each mesh axis moves in a step. What moves in every tick of a pipeline waits with idle stages."""
    tokens = batch / layout.ways / layout.microbatches
    layers = (model.layers or 1) / layout.pipeline
    activations = tokens * model.d_model * precision.moved
    if layout.tensor > 1:
        way = way_of(layout, "tensor", chip)
        times = layers * layout.microbatches * (EXCHANGES + (RECOMPUTED if layout.recomputes else 0))
        each = collectives.all_gather_seconds(activations, way.bandwidth, way.axes, layout.tensor, way.latency)
        yield Traffic("tensor", "activations", times * activations, times * each / efficiency, way)
    if layout.data > 1:
        way = way_of(layout, "data", chip)
        pieces = list(pieces_of(model, layout, precision))
        seconds = sum(
            times * collectives.all_gather_seconds(size, way.bandwidth, way.axes, layout.data, way.latency)
            for size, times in pieces
        )
        yield Traffic("data", MOVED[layout.zero], sum(size * times for size, times in pieces), seconds, way)
    if layout.replica > 1:
        way = way_of(layout, "replica", chip)
        size = stage_parameters(model, layout) * precision.gradient / layout.data
        seconds = collectives.all_reduce_seconds(size, way.bandwidth, way.axes, layout.replica, way.latency)
        yield Traffic("replica", "gradients", 2 * size, seconds, way)
    if layout.pipeline > 1:
        way = way_of(layout, "pipeline", chip)
        times, size = 2 * layout.microbatches, activations / layout.tensor
        seconds = times * collectives.send_seconds(size, way.bandwidth, latency=way.latency) / efficiency
        yield Traffic("pipeline", "activations", times * size, seconds, way)


def pieces_of(model: Model, layout: Layout, precision: Precision) -> Iterator[tuple[float, float]]:
    """What the data axis gathers or scatters at once, in bytes, and how often in a step.

    Data parallelism all-reduces gradients once, which counts twice. ZeRO-1 reduce-scatters them once and gathers
    updated parameters once, as wide as they rest; ZeRO-2, which keeps no whole gradients, scatters them in every
    microbatch. FSDP gathers each layer
    and scatters its gradient in every microbatch; if it recomputes, it gathers layers again in the backward pass, but
    not the embedding.
    """
    own, count = stage_parameters(model, layout) * precision.moved, layout.microbatches
    if layout.zero < 3:
        yield own, count if layout.zero == 2 else 1
        yield own * (precision.parameter / precision.moved if layout.zero else 1), 1
        return
    layers = (model.layers or 1) / layout.pipeline
    layer = model.layer / layout.tensor * precision.moved
    yield layer, layers * count * (3 if layout.recomputes else 2)
    if model.embedding:
        yield own - layers * layer, 2 * count
