"""What training starts from: a state, a batch, and the loss before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshproof.contract import Leaves, leaves
from meshproof.measures.layout import LeafLayout, observe_layout
from meshproof.observing.gathering import whole_layout
from meshproof.observing.layouts import Layouts, declared, observe_layouts
from meshproof.observing.members import canonical, scalar
from meshproof.observing.seen import Facet, Seen
from meshproof.observing.state import displaced, host
from meshproof.observing.subject import Subject


@dataclass(frozen=True)
class BatchLayout(Facet):
    """A placed batch; ``displaced`` names the shards that do not hold their own part of the host batch."""

    fields: Seen[tuple[LeafLayout, ...]]
    displaced: Seen[tuple[str, ...]]


@dataclass(frozen=True)
class Start(Facet):
    """Before the first train step: the state, the first batch, and the ``loss`` of the forward pass on both."""

    layouts: Layouts
    batch: BatchLayout
    parameters: Seen[Leaves]
    loss: Seen[float]


def observe_start(subject: Subject, state: Any) -> Start:
    """The start from this state."""
    return Start(
        layouts=observe_layouts(subject, state),
        batch=subject.facet(BatchLayout, lambda: _batch_layout(subject), "shard_batch"),
        parameters=subject.attempt(lambda: subject.host(subject.tree("parameters", state)), "parameters"),
        loss=subject.attempt(lambda: scalar(subject.ask("loss", state, subject.batches[0]), "loss"), "loss"),
    )


def _batch_layout(subject: Subject) -> BatchLayout:
    placed = dict(leaves(canonical(subject.batches[0], "shard_batch")))
    fields = whole_layout(observe_layout(placed, subject.strategy.mesh, declared(subject, "batch")))
    return BatchLayout(fields, displaced(placed, host(subject.host_batches[0])))
