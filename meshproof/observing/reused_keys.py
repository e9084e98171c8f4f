"""Whether a step draws twice by one key, as JAX checks it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jax
from jax.experimental.key_reuse import _core as checks

from meshproof.observing.members import origin, state_and_metrics
from meshproof.observing.meshes_in_traces import meshes_in_traces
from meshproof.observing.other_states import with_typed_keys
from meshproof.observing.subject import Subject


def reused_keys(subject: Subject) -> tuple[str, ...]:
    """In a step, or in its forward pass: where a scan is differentiated, JAX draws once, before it."""
    strategy, state, batch = subject.strategy, subject.fresh(), subject.batches[0]
    steps = [lambda state, batch: state_and_metrics(strategy.train_step(state, batch))[1]]
    steps += [strategy.loss] if subject.has("loss") else []
    for step in steps:
        said = reused_key(step, state, batch)
        # What a step makes by PRNGKey has a type, too. JAX keeps traces by precision, and not by the type of keys.
        with jax.enable_custom_prng(True), jax.default_matmul_precision("highest"):
            said = said or reused_key(step, with_typed_keys(state), batch)
        if said:
            return (said,)
    return ()


def reused_key(step: Callable[..., Any], state: Any, batch: Any) -> str:
    """What JAX says of a key that is used twice. Of what cannot be traced from outside it says nothing."""
    with jax.debug_key_reuse(True), warnings.catch_warnings(), patch.object(checks, "unknown_signature", hands_on):
        warnings.simplefilter("ignore")  # of keys without a type, which nobody but this asked for
        try:
            with meshes_in_traces():
                jax.make_jaxpr(step)(state, batch)
        except jax.errors.KeyReuseError as error:
            where = origin(error.__cause__) if isinstance(error.__cause__, Exception) else ""
            return str(error).splitlines()[0].rstrip(".:") + (f" ({where})" if where else "")
        except Exception:
            return ""
    return ""


def hands_on(equation: Any) -> Any:
    """What becomes of keys by a primitive that JAX's check has no rule for.

    It takes the keys that such a one gives for used (https://github.com/jax-ml/jax/issues/25953, once for
    ``device_put``). A cast of a key that all devices have, of which a ``fold_in`` of the device's number makes its own,
    is that key. A transpose, which `jax.vmap` puts before a scan, gives others.
    """
    taken, given = ([at for at, var in enumerate(some) if is_key(var)] for some in (equation.invars, equation.outvars))
    shapes = [equation.invars[at].aval.shape for at in taken], [equation.outvars[at].aval.shape for at in given]
    if shapes[0] == shapes[1]:
        return checks.KeyReuseSignature(*map(checks.Forward, taken, given))
    return checks.KeyReuseSignature(*map(checks.Sink, taken), *map(checks.Source, given))


def is_key(var: Any) -> bool:
    """Whether a variable of a jaxpr holds keys."""
    return hasattr(var.aval, "dtype") and bool(jax.numpy.issubdtype(var.aval.dtype, jax.dtypes.prng_key))
