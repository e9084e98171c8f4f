"""What must be refused, and in what words: each attempt gives the error's text, or nothing where it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from meshproof.cases import Case
from meshproof.contract import Batch


@dataclass(frozen=True)
class Refusals:
    """The attempts on one case, with one of its batches; ``fresh`` makes a state."""

    case: Case
    batch: Batch
    fresh: Callable[[], Any]

    @property
    def strategy(self) -> Any:
        """The strategy."""
        return self.case.strategy

    def short_batch(self) -> str:
        """A batch that lacks its last example."""
        short = {field: value[:-1] for field, value in self.batch.items()}
        return refusal(lambda: self.strategy.shard_batch(short))

    def missing_dimension(self) -> dict[int, str]:
        """Host batches without their device dimension, by their number of examples.

        A whole batch, and one of as many examples as there are devices: `jax.pmap` would take that one, for an
        example each. Nothing where the contract knows no such dimension.
        """
        sizes = (len(next(iter(self.batch.values()))), self.case.devices)
        return {size: self.undivided(size) for size in sizes if self.case.contract.device_dimension}

    def undivided(self, size: int) -> str:
        """The first examples of the batch, as they are on the host."""
        examples = {field: value[:size] for field, value in self.batch.items()}
        return refusal(lambda: self.strategy.train_step(self.fresh(), examples))

    def small_machine(self) -> str:
        """A machine that lacks one device."""
        return refusal(lambda: self.strategy.make_mesh(list(self.strategy.mesh.devices.flat)[:-1]))


def refusal(attempt: Callable[[], Any]) -> str:
    """What an attempt is refused with; empty where it is not refused."""
    try:
        jax.block_until_ready(attempt())
    except Exception as error:
        return str(error)
    return ""
