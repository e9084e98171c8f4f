"""The loop of `reference_impl.train` a step at a time, so that somebody else can stop it: what CKP-6 judges."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import numpy as np

from meshproof.contract import Batch
from reference_impl.forms.base import Form
from reference_impl.lifecycle.choosing import choose
from reference_impl.lifecycle.run_folder import RunFolder
from reference_impl.lifecycle.training_data import Shuffled, fields_for
from reference_impl.train import Run

BATCH, DEVICES, SEED = 512, 8, 0
"""Examples of a batch, of which four are an epoch, and the most devices that are used."""


@cache
def trainer(devices: int) -> tuple[Form, dict[str, np.ndarray]]:
    """One for all runs of a process, so that its step is compiled once, and what it trains on."""
    form = choose("fsdp", "jax", "mlp", {"data": devices}, BATCH)
    return form, fields_for(form.network)


class ShortRun:
    """FSDP of the perceptron; it goes on from the last checkpoint of a folder where there is one."""

    def __init__(self, folder: Path) -> None:
        form, fields = trainer(1 << min(DEVICES, jax.device_count()).bit_length() - 1)
        self.run = Run(form, Shuffled(fields, BATCH, SEED))
        resume = bool(RunFolder(folder, 2).steps())
        self.folder = RunFolder.open(folder, 2, {"model": form.model, "batch": BATCH, "seed": SEED}, resume)
        self.step = 0
        if self.folder and resume:
            self.step, self.state = self.folder.restore(form, self.run.feed.data)
        else:
            self.state = form.init(jax.random.key(SEED))  # type: ignore[attr-defined]

    def __next__(self) -> tuple[Batch, float]:
        self.state = self.run.step(self.state, self.step)
        self.step += 1
        return self.run.feed.last, self.run.losses[-1]

    def save(self) -> None:
        """The state and the place of the data, whole on disk when this returns."""
        if self.folder:
            self.folder.save(self.run.strategy, self.state, self.step, self.run.feed.data)
            self.folder.wait()
