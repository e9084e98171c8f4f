"""What a state has beside parameters and optimizer state, and what becomes of it on one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from meshproof.cases import has_member
from meshproof.contract import Leaves
from meshproof.observing.alone import on_one_device
from meshproof.observing.members import canonical, state_and_metrics
from meshproof.observing.seen import Facet, NotSupported, Seen
from meshproof.observing.state import host
from meshproof.observing.subject import Subject


@dataclass(frozen=True)
class Auxiliary(Facet):
    """Before the first step: its ``start``. ``alone`` is that of ``single_device``, before the first and after each.

    Both are empty where the strategy has no ``auxiliary``. Of a typed random key they have the data.
    """

    start: Seen[Leaves]
    alone: Seen[tuple[Leaves, ...]]


def observe_auxiliary(subject: Subject, state: Any) -> Auxiliary:
    """That of this state, and of as many steps on one device."""
    if not subject.has("auxiliary"):
        return Auxiliary({}, ())
    return Auxiliary(
        start=subject.attempt(lambda: subject.host(subject.tree("auxiliary", state))),
        alone=subject.attempt(lambda: _alone(subject), "single_device"),
    )


def _alone(subject: Subject) -> tuple[Leaves, ...] | NotSupported:
    """From what ``init`` makes of the same key: ``load`` is not handed what a key in the state may be made of."""
    trainer = on_one_device(subject.strategy, "float32")
    start = "load" if subject.canonical_start else "init"
    if lacking := [member for member in (start, "auxiliary") if not has_member(trainer, member)]:
        return NotSupported(f"what single_device returns has no {' and no '.join(lacking)}")
    given = subject.strategy.truth.initial_parameters() if subject.canonical_start else jax.random.key(0)
    state = getattr(trainer, start)(given)
    place = trainer.shard_batch if has_member(trainer, "shard_batch") else lambda batch: batch
    found = [host(canonical(trainer.auxiliary(state), "auxiliary"))]
    for batch in subject.host_batches:
        state, _ = state_and_metrics(trainer.train_step(state, place(batch)))
        found.append(host(canonical(trainer.auxiliary(state), "auxiliary")))
    return tuple(found)
