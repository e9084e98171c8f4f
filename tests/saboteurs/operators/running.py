"""Faults in how a step runs: what it keeps, whom it calls, how often it is compiled."""

from __future__ import annotations

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

    def __init__(self, healthy: Any, compiled: Any) -> None:
        self.healthy, self.compiled, self.lower = healthy, compiled, healthy.lower

    def __call__(self, *arguments: Any) -> Any:
        """Forget, then run."""
        self.compiled.clear_cache()
        return self.healthy(*arguments)


@operator
def retraced_every_step(form: Form) -> Members | None:
    """Every step compiles. What ``pmap`` has compiled cannot be forgotten so."""
    if is_pmap(form):
        return None
    healthy: Any = type(form).train_step  # type: ignore[attr-defined]

    def train_step(self: Any) -> Forgetful:
        step = healthy.func(self)
        return Forgetful(step, step.jitted)

    return {"train_step": property(train_step)}
