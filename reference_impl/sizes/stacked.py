"""What the sizes share that are only compiled: a GPT scanned over its blocks, recomputed, in bfloat16, with Adam.

A device keeps float32 parameters and two moments, 12 bytes a parameter of its share; while it computes, that share in
bfloat16, the input of each block of its examples, and one block's parameters at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshproof.contract import Batch
from reference_impl.forms.base import Form
from reference_impl.forms.hybrid import Hybrid
from reference_impl.forms.manual import Manual
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.modifiers.precision import NarrowOnTheMove
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.sizes.scaled import Scaled, plain
from reference_impl.strategies import (
    fsdp,
    fsdp_blockwise_shard_map,
    fsdp_tensor_parallel,
    fsdp_tensor_parallel_blockwise_shard_map,
    hsdp,
)
from reference_impl.truth import Adam

SLICES = 2


@dataclass(frozen=True)
class Annotated(Scaled):
    """Its examples are drawn in no time: there is no truth that would learn from them."""

    def batches(self, count: int) -> Iterable[Batch]:
        """``count`` batches of tokens, uniformly drawn."""
        gpt: Any = plain(self.network)
        shape = (self.batch_size, gpt.length + 1)
        for number in range(count):
            tokens = np.random.default_rng(number).integers(gpt.vocab, size=shape, dtype=np.int32)
            yield {"x": tokens[:, :-1], "y": tokens[:, 1:]}


@dataclass(frozen=True)
class ByHand(Annotated, Manual):
    """The same by hand."""


@dataclass(frozen=True)
class InSlices(Annotated, Hybrid):
    """The same in slices."""


def fully_sharded(network: ScannedGPT, devices: int, examples: int, slices: bool = False) -> Iterator[Form]:
    """FSDP over all devices, with so many examples on each, annotated and by hand; and on two slices, if asked."""
    yield form(Annotated, fsdp.PAGE, {"data": devices}, network, examples)
    yield form(ByHand, fsdp_blockwise_shard_map.PAGE, {"data": devices}, network, examples)
    if slices:
        yield form(InSlices, hsdp.PAGE, {"replica": SLICES, "data": devices // SLICES}, network, examples)


def split_tensors(network: ScannedGPT, devices: int, examples: int, model: int) -> Iterator[Form]:
    """FSDP with each tensor on ``model`` devices, which share so many examples; annotated and by hand."""
    axes = {"data": devices // model, "model": model}
    yield form(Annotated, fsdp_tensor_parallel.PAGE, axes, network, examples)
    yield form(ByHand, fsdp_tensor_parallel_blockwise_shard_map.PAGE, axes, network, examples)


def form(kind: Any, page: Any, axes: dict[str, int], network: ScannedGPT, examples: int) -> Form:
    """A page at a size."""
    shards = axes.get("replica", 1) * axes["data"]
    modified = NarrowOnTheMove(Rematerialised(network))
    return kind(page, axes, Adam(), modified, batch_size=examples * shards)  # type: ignore[no-any-return]
