"""What a plan proposes, built: a page of the book on that mesh, and a GPT of those sizes.

Layers that are recomputed are scanned, all of them. Others are written out, and of these two are enough to see what
each moves and holds: a scan would keep the gradients of all of them whole, and reduce them together.

A GPT has a hidden layer of two matrices, as many heads of keys as of queries, a learned position for each token and a
tied head. Where a layer of the proposal has other parameters, as with a gate or grouped heads, the width of the hidden
layer is the one that gives it as many.
"""

from __future__ import annotations

from collections.abc import Mapping as Named
from dataclasses import replace
from typing import Any

from meshproof.contract import Proposal
from reference_impl.forms.base import Form
from reference_impl.mapping import Mapping
from reference_impl.models import Model
from reference_impl.models.gpt import GPT
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.modifiers.precision import NarrowOnTheMove
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.optimizers import Optimizer
from reference_impl.page import Budget, HybridPage, Page, all_gather, all_reduce
from reference_impl.sizes.stacked import Annotated, InSlices
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
    hsdp,
    sequence_parallel,
    single_device,
    zero1,
    zero2,
)
from reference_impl.truth import Adam, Momentum

SPLIT_TENSORS = Mapping(heads="model", mlp="model")


def joined(by_data: Mapping, by_tensor: Mapping) -> Mapping:
    """What both split."""
    return Mapping(**by_data.placed, **by_tensor.placed)


ZERO1_TENSOR_PARALLEL = replace(
    sequence_parallel.PAGE,
    name="zero1_tensor_parallel",
    optimizer=joined(zero1.PAGE.optimizer, sequence_parallel.AT_REST),
    communication=Budget(
        step=[*sequence_parallel.PAGE.communication.step, all_gather("parameters", over="data", dtype="float32")]
    ),
)
"""`sequence_parallel`, whose optimizer state is split over data too."""

HSDP_TENSOR_PARALLEL = replace(
    hsdp.PAGE,
    name="hsdp_tensor_parallel",
    compute=joined(hsdp.PAGE.compute, SPLIT_TENSORS),
    within=joined(hsdp.WITHIN, SPLIT_TENSORS),
    parameters=fsdp_tensor_parallel.PAGE.parameters,
    gradients=fsdp_tensor_parallel.PAGE.gradients,
    optimizer=fsdp_tensor_parallel.PAGE.optimizer,
    communication=Budget(step=[*hsdp.PAGE.communication.step, all_reduce("activations", over="model")]),
)
"""The groups of `hsdp`, each of which computes as `fsdp_tensor_parallel` does."""

PAGES: dict[str, Page] = {
    "single device": single_device.PAGE,
    "data parallel": data_parallel.PAGE,
    "ZeRO-1": zero1.PAGE,
    "ZeRO-2": zero2.PAGE,
    "FSDP": fsdp.PAGE,
    "HSDP": hsdp.PAGE,
    "tensor parallel": sequence_parallel.PAGE,
    "data parallel + tensor parallel": sequence_parallel.PAGE,
    "ZeRO-1 + tensor parallel": ZERO1_TENSOR_PARALLEL,
    "FSDP + tensor parallel": fsdp_tensor_parallel.PAGE,
    "HSDP + tensor parallel": HSDP_TENSOR_PARALLEL,
}
"""By the names of plans, whose tensor shards split what goes from layer to layer too."""

OPTIMIZERS: dict[str, Optimizer] = {"adam": Adam(), "momentum": Momentum()}
PRECISIONS = ("mixed", "float32")
NEEDED = ("layers", "d_model", "d_ff", "heads", "vocabulary", "length")

ASKED = {"vocabulary": "vocab", "length": "sequence"}
"""What `meshproof plan` calls a size otherwise."""

NEAR = 0.05
"""The share by which a layer's parameters may differ from the proposal's before another width is sought."""

WRITTEN_OUT = 2
"""Layers at most, of those that are not scanned."""

WIDTH = 8
"""What divides a width that is sought, on each tensor shard."""


def proposed(proposal: Proposal) -> Form:
    """The strategy. Raises ``LookupError`` where the book has none, naming those it has."""
    if unknown := [size for size in NEEDED if not getattr(proposal, size)]:
        asked = " ".join(f"--{ASKED.get(size, size.replace('_', '-'))}" for size in unknown)
        raise LookupError(f"a GPT needs its {', '.join(unknown)}: give {asked}")
    if proposal.strategy not in PAGES:
        raise LookupError(f"the book builds of a plan {', '.join(PAGES)}")
    options: dict[str, tuple[str, Named[str, Any] | tuple[str, ...]]] = {
        "optimizer": (proposal.optimizer, OPTIMIZERS),
        "precision": (proposal.precision, PRECISIONS),
    }
    for option, (name, known) in options.items():
        if name not in known:
            raise LookupError(f"the book builds no {option} {name!r} of a plan; it builds {', '.join(known)}")
    page = PAGES[proposal.strategy]
    in_groups = isinstance(page, HybridPage)
    axes = {axis: proposal.mesh.get(axis, 1) for axis in (("replica", "data") if in_groups else ("data",))}
    if "tensor" in proposal.mesh:
        axes["model"] = proposal.mesh["tensor"]
    kind = InSlices if in_groups else Annotated
    optimizer = OPTIMIZERS[proposal.optimizer]
    return kind(page, axes, optimizer, network(proposal), variant="proposed", batch_size=proposal.examples)


def network(proposal: Proposal) -> Model:
    """The model with the modifiers of the proposal."""
    scans = proposal.recomputes and proposal.strategy != "ZeRO-2"
    kind, layers = (ScannedGPT, proposal.layers) if scans else (GPT, min(proposal.layers, WRITTEN_OUT))
    found: Model = kind(
        vocab=proposal.vocabulary,
        length=proposal.length,
        embed=proposal.d_model,
        heads=proposal.heads,
        head_dim=proposal.d_model // proposal.heads,
        mlp=hidden_width(proposal),
        blocks=layers,
    )
    if proposal.recomputes:
        found = Rematerialised(found)
    return NarrowOnTheMove(found) if proposal.precision == "mixed" else found


def hidden_width(proposal: Proposal) -> int:
    """F: the proposal's, if a layer then has about its parameters, which are 4D² + 8D + F(2D + 1)."""
    D, wanted = proposal.d_model, proposal.layer_parameters
    others, each = 4 * D * D + 8 * D, 2 * D + 1
    if abs(others + proposal.d_ff * each - wanted) <= NEAR * wanted:
        return proposal.d_ff
    step = WIDTH * proposal.mesh.get("tensor", 1)
    return max(step, round((wanted - others) / each / step) * step)
