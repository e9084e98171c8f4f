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


def names_another(self: Group, *_: float) -> Fault:
    """Says that process 7 died, whoever did."""
    found = watch(self, *_)
    return Fault(7, found.told)


watch = Group.watch
FORMS = {"forgets_momentum": ForgetsMomentum, "saves_in_place": SavesInPlace, "swallows_errors": SwallowsErrors}


def plant(name: str) -> None:
    """In this process. Raises ``KeyError`` for a fault that is not here."""
    if name == "names_another":
        Group.watch = names_another
    else:
        subject.FORM = FORMS[name](**vars(subject.FORM))
