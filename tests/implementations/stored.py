"""Faults in how a trainer keeps, pads and moves what it has.

``CAUGHT_BY`` says which clauses must fail; where no such memory is there, none.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.healthy.idioms import Trainer
from tests.healthy.stored import Compresses, Masters, Offloads, Pads, StoredNarrow

CAUGHT_BY = {
    "master_unused": {"MIX-2"},
    "parameters_wide": {"MIX-2"},
    "computes_narrow": {"MIX-2"},
    "moment_narrow": {"MIX-2"},
    "pads_unmasked": {"ERR-1"},
    "pads_without_a_word": {"ERR-1"},
    "padding_in_the_mean": {"ERR-1"},
    "padding_in_the_loss": {"ERR-1"},
    "pads_other_rows": {"ERR-1"},
    "not_offloaded": {"SHD-11"},
    "uncompressed": {"COM-11"},
    "compressed_unsaid": {"COM-11", "MIX-2"},
    "offloads_more": {"SHD-2", "SHD-11", "CMP-2"},
}


class MasterUnused(Masters):
    """Keeps a master, and adds updates to what was rounded."""

    name = "master_unused"

    def step(self, state, batch):
        """bfloat16 + bfloat16."""
        new, metrics = super().step(state, batch)
        moved = jax.tree.map(lambda after, before: after - before, new["master"], state["master"])
        return new | {"parameters": jax.tree.map(jnp.add, state["parameters"], self.cast(moved))}, metrics


class WideAfterAll(StoredNarrow):
    """Promises bfloat16 and keeps float32."""

    name = "parameters_wide"

    def cast(self, tree):
        """Not at all."""
        return jax.tree.map(jnp.copy, tree)


class ComputesNarrow(StoredNarrow):
    """Keeps bfloat16, as declared, and multiplies in it, which is not."""

    name = "computes_narrow"
    mean_loss = Masters.mean_loss


class MomentNarrow(Trainer):
    """A first moment in bfloat16, of which nobody is told."""

    name = "moment_narrow"
    optimizer = optax.adamw(1e-2, mu_dtype=jnp.bfloat16)


class PadsUnmasked(Pads):
    """Fills a batch up, and counts what it has filled in."""

    name = "pads_unmasked"

    def shard_batch(self, batch):
        """By repeating the last row, as some loaders do, its count too."""
        lacking = -len(batch["x"]) % self.mesh_axes["data"]
        full = {name: np.concatenate([value, np.ones_like(value[:lacking])]) for name, value in batch.items()}
        return Trainer.shard_batch(self, full)


class PadsWithoutAWord(Pads):
    """The healthy loader, whose contract names no mask."""

    name = "pads_without_a_word"

    @property
    def contract(self):
        """As if no batch was ever short."""
        return replace(super().contract, mask=None)


class DividesByRows(Pads):
    """Masks the sum, and divides it by all rows: those of the padding too."""

    name = "padding_in_the_mean"

    def batch(self, draws):
        """Every row counts, but for the padding."""
        return super().batch(draws) | {"counts": np.ones(64, np.float32)}

    def mean_loss(self, w, batch):
        """64 in place of 63."""
        return super().mean_loss(w, batch) * jnp.sum(batch["counts"]) / len(batch["counts"])


class IgnoresMask(Pads):
    """Names a mask and never reads it."""

    name = "padding_in_the_loss"
    mean_loss = Trainer.mean_loss


class DropsRows(Pads):
    """Cuts a short batch to what divides, and masks as many rows as were given."""

    name = "pads_other_rows"

    def shard_batch(self, batch):
        """The first rows once more."""
        lacking = -len(batch["x"]) % self.mesh_axes["data"]
        full = {name: np.concatenate([value[:lacking], value]) for name, value in batch.items()}
        counts = np.where(np.arange(len(full["counts"])) < len(batch["x"]), 1, 0) * (lacking > 0)
        given = batch["counts"] if not lacking else counts * (np.cumsum(counts) <= batch["counts"].sum())
        return Trainer.shard_batch(self, full | {"counts": given.astype(np.float32)})


class NotOffloaded(Offloads):
    """Promises its moments in the host's memory, and leaves them where they are."""

    name = "not_offloaded"

    def moved(self, optimizer, kind):
        """Not at all."""
        return optimizer


class OffloadsMore(Offloads):
    """Says so of one moment, and offloads both."""

    name = "offloads_more"

    @property
    def contract(self):
        """The first."""
        return replace(super().contract, memory={"optimizer_state/mu/*": self.kind})


class NoSuchMemory(Offloads):
    """On a backend that has no such memory."""

    name = "no_such_memory"
    kind = "bubble"


class NoSuchMemoryHere(NotOffloaded):
    """Offloads where there is such memory, and here there is not."""

    name = "no_such_memory_here"
    kind = "bubble"


class Uncompressed(Compresses):
    """Says that its gradients move in bfloat16, and forgets the cast."""

    name = "uncompressed"
    moved = "float32"


class CompressedWide(Compresses):
    """Says float32, as many bytes as it moves in bfloat16."""

    name = "compressed_unsaid"
    moves = (replace(Compresses.moves[0], dtype="float32"), Compresses.moves[1])


def strategies():
    """All."""
    kinds = (MasterUnused, WideAfterAll, ComputesNarrow, MomentNarrow)
    kinds += (PadsUnmasked, PadsWithoutAWord, DividesByRows, IgnoresMask, DropsRows)
    kinds += (NotOffloaded, OffloadsMore, NoSuchMemory, NoSuchMemoryHere, Uncompressed, CompressedWide)
    return [kind() for kind in kinds]
