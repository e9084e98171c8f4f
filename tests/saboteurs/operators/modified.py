"""Faults in what is added to a strategy: microbatches, masks, draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from reference_impl.forms.base import Form
from reference_impl.forms.pipeline import NONE, Pipeline, Row
from reference_impl.forms.pipelined import Pipelined
from reference_impl.models.gpt import GPT
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from tests.saboteurs.modifiers import Alike, CountsTwice, ForgetsLast
from tests.saboteurs.operators.mutation import Members, method, operator
from tests.saboteurs.transformers import DrawsPerDevice

MICROBATCH, DEPTH = (Row._fields.index(name) for name in ("microbatch", "depth"))


def scheduling(form: Form, harm: Callable[[np.ndarray, Any], None]) -> Members:
    """The members of a pipeline whose stages do otherwise than the schedule says."""
    healthy = Pipeline.rows.func  # type: ignore[attr-defined]

    def rows(self: Pipeline) -> np.ndarray:
        own: np.ndarray = healthy(self).copy()
        harm(own, self.schedule)
        return own

    def compiled(self: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        @wraps(function)
        def traced(*given: Any) -> Any:
            with patch.object(Pipeline, "rows", property(rows)):
                return function(*given)

        return method(form, "compile")(self, traced, *arguments, **options)

    return {"compile": compiled}


@operator
def microbatch_skipped(form: Form) -> Members | None:
    """The last microbatch is not trained on."""
    if isinstance(form.network, Accumulated):
        return {"network": ForgetsLast(form.network.model, form.network.microbatches)}

    def harm(rows: np.ndarray, schedule: Any) -> None:
        is_last = (rows[..., MICROBATCH] == schedule.microbatches - 1) & (rows[..., DEPTH] == schedule.depths - 1)
        rows[..., DEPTH][is_last] = NONE

    return scheduling(form, harm) if isinstance(form, Pipelined) else None


@operator
def microbatch_counted_twice(form: Form) -> Members | None:
    """The last microbatch is taken for the one before it, too."""
    if isinstance(form.network, Accumulated):
        return {"network": CountsTwice(form.network.model, form.network.microbatches)}

    def harm(rows: np.ndarray, schedule: Any) -> None:
        last = schedule.microbatches - 1
        rows[..., MICROBATCH][rows[..., MICROBATCH] == last - 1] = last

    return scheduling(form, harm) if isinstance(form, Pipelined) else None


@operator
def masks_averaged_per_device(form: Form) -> Members | None:
    """Every device's mean weighs alike, however few of its examples are valid."""
    return {"network": Alike(form.network)} if isinstance(form.network, Masked) else None


@operator
def draws_by_device(form: Form) -> Members | None:
    """Dropout masks depend on how many devices share a batch."""
    return {"network": DrawsPerDevice(**vars(form.network))} if draws(form) else None


class SharesKey(GPT):
    """One dropout mask for every layer."""

    def drop(self, y: Any, key: Any, site: int) -> Any:
        """The first one's."""
        return super().drop(y, key, 0)


class DrawsOnce(GPT):
    """One dropout mask for every step."""

    def drop(self, y: Any, key: Any, site: int) -> Any:
        """The key knows of no step."""
        return super().drop(y, jax.random.key(0, impl="threefry2x32"), site)


@operator
def draws_shared_by_layers(form: Form) -> Members | None:
    """Every layer drops the same."""
    return {"network": SharesKey(**vars(form.network))} if draws(form) else None


@operator
def draws_shared_by_steps(form: Form) -> Members | None:
    """Every step drops the same."""
    return {"network": DrawsOnce(**vars(form.network))} if draws(form) else None


def draws(form: Form) -> bool:
    """Whether its model drops anything, by masks of its own: Flax's layers have others."""
    return type(form.network) is GPT and form.network.dropout > 0
