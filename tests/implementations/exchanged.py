"""Trainers whose checkpoints another process reads otherwise, as another stack might.

``EXPECTED`` says how the first line of what is told of each begins; none where the checkpoint is read as it was saved.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import jax
from jax.sharding import PartitionSpec

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.linen_form import LinenForm
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


class ForgetsItsStep(KnowsWhoSaved, LinenForm):
    """A counter that stands in no canonical tree."""

    def otherwise(self, state):
        """From the beginning."""
        return state.replace(step=jax.numpy.zeros_like(state.step))


class Dies(KnowsWhoSaved):
    """A crash."""

    def otherwise(self, state):
        """As jaxlib may."""
        os.abort()


class Ends(KnowsWhoSaved):
    """A handler of a signal that ends the process as if all were well."""

    def otherwise(self, state):
        """Without a word."""
        os._exit(0)


class SavesElsewhere(JaxForm):
    """A folder of its own, whichever it is given."""

    def save(self, state, folder):
        """Where nobody looks."""
        checkpointing.save(state, Path(tempfile.mkdtemp()) / "mine")


EXPECTED = {
    "kept": None,
    "renames_a_leaf": "CheckpointError: ",
    "drifts": "state: 16 of 16 leaves failed",
    "forgets_its_step": "state: 1 of 17 leaves failed; the first in model order is state.step",
    "dies": "the process that should restore it ended",
    "ends": "the process that should restore it ended",
    "displaces": ".parameters['dense_0']['bias']: expected P('data',)",
}


def strategies():
    """One of each; of the last two one saves elsewhere, and one has no `save`."""
    forms = [JaxForm, RenamesALeaf, Drifts, ForgetsItsStep, Dies, Ends, Displaces]
    yield from (
        form(replace(fsdp.PAGE, name=name), {"data": 8}, Momentum()) for name, form in zip(EXPECTED, forms, strict=True)
    )
    yield SavesElsewhere(replace(fsdp.PAGE, name="saves_elsewhere"), {"data": 8}, Momentum())
    unsaved = JaxForm(replace(fsdp.PAGE, name="saves_nothing"), {"data": 8}, Momentum())
    unsaved.__dict__["save"] = None
    yield unsaved
