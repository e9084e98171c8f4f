"""Faults in how a step runs: what it keeps, whom it calls, how often it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax

from reference_impl.forms.base import Form
from tests.saboteurs.operators.mutation import Members, is_pmap, method, operator


@operator
def donation_lost(form: Form) -> Members:
    """Old and new state are held at once."""
    compiling = "per_device" if is_pmap(form) else "compile"

    def compiled(self: Any, function: Any, *arguments: Any, donate_argnums: Any = None, **options: Any) -> Any:
        return method(form, compiling)(self, function, *arguments, **options)

    return {compiling: compiled}


@operator
def host_callback(form: Form) -> Members:
    """The step tells the host how it is doing."""

    def step(self: Any, state: Any, batch: Any) -> Any:
        state, metrics = method(form, "step")(self, state, batch)
        jax.debug.callback(lambda loss: None, metrics["loss"])
        return state, metrics

    return {"step": step}


class Forgetful:
    """A compiled function that is compiled again at every call."""

    def __init__(self, compile_anew: Callable[[], Any]) -> None:
        self.compile_anew = compile_anew

    def __call__(self, *arguments: Any) -> Any:
        """Compile, then run."""
        return self.compile_anew()(*arguments)

    def lower(self, *arguments: Any) -> Any:
        """Lower it ahead of time."""
        return self.compile_anew().lower(*arguments)


@operator
def retraced_every_step(form: Form) -> Members:
    """Every step compiles: it is the step of another copy of the strategy each time."""
    healthy: Any = type(form).train_step  # type: ignore[attr-defined]
    return {"train_step": cached_property(lambda self: Forgetful(lambda: healthy.func(replace(self))))}
