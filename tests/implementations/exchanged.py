"""Trainers whose checkpoints another process reads otherwise, as another stack might.

``EXPECTED`` says how the first line of what is told of each begins; none where the checkpoint is read as it was saved.
"""

import os
from dataclasses import replace

import jax
from jax.sharding import PartitionSpec

from reference_impl.forms.annotated import JaxForm
from reference_impl.lifecycle import checkpointing
from reference_impl.strategies import fsdp
from reference_impl.truth import Momentum

HERE = os.getpid()


class RenamesALeaf(JaxForm):
    """The name of a leaf is that of the process."""

    def by_process(self, state):
        """The state under that name."""
        return {str(HERE): state}

    def save(self, state, folder):
        """Under this process's name."""
        checkpointing.save(self.by_process(state), folder)

    def restore(self, folder):
        """Under this process's name."""
        return checkpointing.restore(self.by_process(self.abstract_state()), folder)[str(HERE)]


class KnowsWhoSaved(JaxForm):
    """Writes beside the checkpoint which process has saved it."""

    def save(self, state, folder):
        """The checkpoint, and the process."""
        super().save(state, folder)
        folder.with_name("process").write_text(str(HERE), encoding="utf-8")

    def restore(self, folder):
        """Otherwise, where that was another."""
        state = super().restore(folder)
        own = folder.with_name("process").read_text(encoding="utf-8") == str(HERE)
        return state if own else self.otherwise(state)


class Drifts(KnowsWhoSaved):
    """Other numbers."""

    def otherwise(self, state):
        """By one part in a million."""
        return jax.tree.map(lambda leaf: (leaf * (1 + 1e-6)).astype(leaf.dtype), state)


class Displaces(KnowsWhoSaved):
    """Another layout."""

    def otherwise(self, state):
        """Everything everywhere."""
        return jax.device_put(state, self.on_mesh(PartitionSpec()))


class Dies(KnowsWhoSaved):
    """A crash."""

    def otherwise(self, state):
        """As jaxlib may."""
        os.abort()


EXPECTED = {
    "kept": None,
    "renames_a_leaf": "CheckpointError: ",
    "drifts": "state: 16 of 16 leaves failed",
    "dies": "the process that should restore it died",
    "displaces": ".parameters['dense_0']['bias']: expected P('data',)",
}


def strategies():
    """One of each; the last saves nothing."""
    forms = [JaxForm, RenamesALeaf, Drifts, Dies, Displaces]
    yield from (
        form(replace(fsdp.PAGE, name=name), {"data": 8}, Momentum()) for name, form in zip(EXPECTED, forms, strict=True)
    )
    unsaved = JaxForm(replace(fsdp.PAGE, name="saves_nothing"), {"data": 8}, Momentum())
    unsaved.__dict__["save"] = None
    yield unsaved
