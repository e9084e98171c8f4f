"""How a model can be split over devices: strategies with their meshes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import log2, prod

from meshproof.planning.models import Model
from meshproof.targets import Chip

BY_DATA = ("data parallel", "ZeRO-1", "ZeRO-2", "FSDP")
"""What is split over the data axis, by the stage of ZeRO: nothing, moments, gradients too, parameters too."""

OUTERMOST_FIRST = ("pipeline", "replica", "data", "tensor")


@dataclass(frozen=True)
class Layout:
    """A strategy on a mesh, whose axes are in the order of `OUTERMOST_FIRST`: neighbours hold the same tensor.

    A step takes ``microbatches`` one after the other. ``recomputes``: the backward pass recomputes each layer.
    """

    zero: int = 0
    pipeline: int = 1
    replica: int = 1
    data: int = 1
    tensor: int = 1
    microbatches: int = 1
    recomputes: bool = False

    @property
    def mesh(self) -> dict[str, int]:
        """Axes of more than one device, by name."""
        return {axis: size for axis in OUTERMOST_FIRST if (size := getattr(self, axis)) > 1}

    @property
    def devices(self) -> int:
        """Of the whole mesh."""
        return prod(self.mesh.values())

    @property
    def ways(self) -> int:
        """Into how many parts a batch is split."""
        return self.replica * self.data

    @property
    def name(self) -> str:
        """As a practitioner calls it."""
        by_data = "HSDP" if self.replica > 1 else BY_DATA[self.zero]
        parts = {"pipeline": self.pipeline, by_data: self.ways, "tensor parallel": self.tensor}
        return " + ".join(part for part, size in parts.items() if size > 1) or "single device"

    @property
    def spelled(self) -> str:
        """Its mesh in words: ``data=8, tensor=4``."""
        return ", ".join(f"{axis}={size}" for axis, size in self.mesh.items()) or "1"


def layouts(model: Model, devices: int, batch: int) -> Iterator[Layout]:
    """Every strategy on every mesh of so many devices that splits the model and the batch evenly."""
    examples = batch // (model.length or 1)
    for pipeline in divisors(devices):
        if pipeline > 1 and (not model.is_stack or model.layers % pipeline):
            continue
        for tensor in divisors(devices // pipeline):
            ways = devices // pipeline // tensor
            if examples % ways or not splits_tensors(model, tensor):
                continue
            yield Layout(0, pipeline, data=ways, tensor=tensor)
            if ways == 1:
                continue
            for zero in (1, 2, 3):
                yield Layout(zero, pipeline, data=ways, tensor=tensor)
            for data in divisors(ways)[1:-1]:
                yield Layout(3, pipeline, ways // data, data, tensor)


def splits_tensors(model: Model, tensor: int) -> bool:
    """Whether so many shards divide the model's width, its hidden layers and its heads."""
    return tensor == 1 or (
        model.is_stack and not any(size % tensor for size in (model.d_model, model.d_ff, model.heads))
    )


@cache
def divisors(number: int) -> tuple[int, ...]:
    """From 1 to the number."""
    small = [low for low in range(1, int(number**0.5) + 1) if number % low == 0]
    return tuple(sorted({*small, *(number // low for low in small)}))


@dataclass(frozen=True)
class Way:
    """What one mesh axis sends over: ``bandwidth`` in bytes per second over each of ``axes`` axes of links.

    ``network``: it leaves the links. ``latency`` is that of a hop, in seconds.
    """

    bandwidth: float
    axes: int
    latency: float
    network: bool


def way_of(layout: Layout, axis: str, chip: Chip) -> Way:
    """Over which links, or the network, a mesh axis sends.

    Of a torus each axis but data has one dimension, and data what is left, at least one; n devices span at most
    log₂(n). Where an axis leaves the links, the devices within send at the same time, and each over its own adapter: so
    many times the network's bandwidth, if the links carry that. Of a stage only its last device within sends to the
    next. A latency that nobody tells is not counted.
    """
    sizes = (layout.pipeline, layout.replica, layout.data, layout.tensor)
    links = (chip.axes, chip.linked, chip.link_bandwidth, chip.link_latency)
    return _way(sizes, axis, *links, chip.network_bandwidth, chip.network_latency or 0.0)


@cache
def _way(
    sizes: tuple[int, ...],
    axis: str,
    dimensions: int,
    linked: int,
    link: float,
    latency: float,
    network: float,
    network_latency: float,
) -> Way:
    place = OUTERMOST_FIRST.index(axis)
    size, inner = sizes[place], prod(sizes[place + 1 :])
    named = [other for other, many in zip(OUTERMOST_FIRST, sizes, strict=True) if many > 1]
    others = len({*named} - {axis, "data"})
    spread = axis == "data" or len(named) == 1
    axes = max(1, min(dimensions - others if spread else 1, int(log2(max(size, 2)))))
    if size * inner <= linked:
        return Way(link, axes, latency, network=False)
    within = 1 if axis == "pipeline" else max(1, linked // inner)
    return Way(min(link * axes, within * network), 1, network_latency, network=True)
