"""What must be refused, and in what words: each attempt gives the error's text, or nothing where it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from meshproof.observing.padding import padding, shortened
from meshproof.observing.seen import Facet, Seen
from meshproof.observing.subject import Subject


@dataclass(frozen=True)
class Refusals(Facet):
    """The error's text, empty where the attempt was not refused.

    ``uneven_batch``: a batch that lacks its last example. ``padding`` is what is wrong with a batch that was made of it
    in place of an error: empty where its mask counts just the given examples, or where it was refused.
    ``missing_dimension``, by the number of examples: host batches without their device dimension, none where the
    contract knows no such dimension. ``small_machine``: a mesh on a machine that lacks one device.
    """

    uneven_batch: Seen[str]
    padding: Seen[str]
    missing_dimension: Seen[dict[int, str]]
    small_machine: Seen[str]


def observe_refusals(subject: Subject) -> Refusals:
    """The attempts with the first batch."""
    return Refusals(
        uneven_batch=(refused := subject.attempt(lambda: _uneven_batch(subject), "shard_batch")),
        padding="" if refused else subject.attempt(lambda: padding(subject, shortened(subject))),
        missing_dimension=subject.attempt(lambda: _missing_dimension(subject)),
        small_machine=subject.attempt(lambda: _small_machine(subject), "make_mesh"),
    )


def _uneven_batch(subject: Subject) -> str:
    return _refusal(lambda: subject.strategy.shard_batch(shortened(subject)))


def _missing_dimension(subject: Subject) -> dict[int, str]:
    """Of a whole batch, and of one with as many examples as devices: `jax.pmap` would take that, one example each."""
    batch, case = subject.host_batches[0], subject.case
    sizes = (len(next(iter(batch.values()))), case.devices) if case.contract.device_dimension else ()

    def undivided(size: int) -> str:
        examples = {field: value[:size] for field, value in batch.items()}
        return _refusal(lambda: subject.strategy.train_step(subject.fresh(), examples))

    return {size: undivided(size) for size in sizes}


def _small_machine(subject: Subject) -> str:
    return _refusal(lambda: subject.strategy.make_mesh(list(subject.strategy.mesh.devices.flat)[:-1]))


def _refusal(attempt: Callable[[], Any]) -> str:
    try:
        jax.block_until_ready(attempt())
    except Exception as error:
        return str(error)
    return ""
