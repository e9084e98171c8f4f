"""Runs and launchers with a fault of their own, which the scheduler must see: ``--plant NAME``."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

from meshproof.launching.endings import Fault
from meshproof.launching.group import Group
from meshproof.launching.watch import Watch
from reference_impl.forms.annotated import JaxForm
from tests.run_faults import subject


class ForgetsMomentum(JaxForm):
    """Goes on with the parameters alone."""

    def restore(self, folder: Path, data: Any = None) -> Any:
        """Momentum starts from nothing."""
        state = super().restore(folder, data)
        return state._replace(optimizer=jax.tree.map(lambda array: array * 0, state.optimizer))


class Awaited(JaxForm):
    """What it saves in the background is saved at once."""

    def save_async(self, state: Any, folder: Path, data: Any = None) -> Any:
        """By `save`, whatever that does."""
        self.save(state, folder, data)
        return SimpleNamespace(result=lambda: None, done=lambda: True)


class SavesInPlace(Awaited):
    """Its checkpoints have their last name from the first file on."""

    def save(self, state: Any, folder: Path, data: Any = None) -> None:
        """File by file."""
        with tempfile.TemporaryDirectory() as name:
            super().save(state, Path(name) / "whole", data)
            shutil.copytree(Path(name) / "whole", folder, dirs_exist_ok=True)


class SwallowsErrors(Awaited):
    """A save that failed is none that anybody hears of."""

    def save(self, state: Any, folder: Path, data: Any = None) -> None:
        """Or does not."""
        with suppress(Exception):
            super().save(state, folder, data)


class CommitsAlone(Awaited):
    """Of several processes each copies its share into the checkpoint, and none waits for the others."""

    def save(self, state: Any, folder: Path, data: Any = None) -> None:
        """The share of process 0 has all that is of no single process."""
        whole, own = folder.with_name(f"{folder.name}.whole"), f"process_{jax.process_index()}"
        super().save(state, whole, data)
        for file in sorted(path for path in whole.rglob("*") if path.is_file()):
            name = str(file.relative_to(whole))
            if own in name or (own == "process_0" and "process_" not in name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / name)


def names_another(self: Group, *_: float) -> Fault:
    """Says that process 7 died, whoever did."""
    found = watch(self, *_)
    return Fault(7, found.told)


def sees_no_death(self: Watch) -> None:
    """Whoever died is waited for."""


watch = Group.watch
FORMS = {
    "forgets_momentum": ForgetsMomentum,
    "saves_in_place": SavesInPlace,
    "swallows_errors": SwallowsErrors,
    "commits_alone": CommitsAlone,
}


def plant(name: str) -> None:
    """In this process. Raises ``KeyError`` for a fault that is not here."""
    if name == "names_another":
        Group.watch = names_another
    elif name == "sees_no_death":
        Watch.dead = sees_no_death
    else:
        subject.FORM = FORMS[name](**vars(subject.FORM))
