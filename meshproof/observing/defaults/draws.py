"""The first numbers that JAX and Flax draw of a key: other ones are another training, of which no bound can tell.

Floats to three digits, so that compilers and devices agree on them. All are drawn by one program for each package,
which is compiled once.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax import random

from meshproof.observing.defaults.probe import PROBES, Probe

STREAMS: dict[str, tuple[Any, tuple[tuple[str, Any], ...]]] = {
    "bits": (
        lambda key: random.bits(key, (4,), jnp.uint32),
        ((">=0.5.0", [4070199207, 4202968722, 1427181096, 2012915765]),),
    ),
    "normal": (
        lambda key: random.normal(key, (4,), jnp.float32),
        ((">=0.5.0", [1.623, 2.025, -0.434, -0.079]),),
    ),
    "randint_of_8_bits": (
        lambda key: random.randint(key, (8,), 0, 100, jnp.int8),
        ((">=0.7.2", [89, 0, 12, 73, 71, 47, 32, 23]), ("<0.7.2", [1, 80, 0, 61, 3, 11, 44, 31])),
    ),
    "permutation": (
        lambda key: random.permutation(key, 8),
        ((">=0.5.0", [0, 1, 5, 6, 4, 3, 2, 7]),),
    ),
    "categorical": (
        lambda key: random.categorical(key, jnp.zeros(100), shape=(8,)),
        ((">=0.5.0", [81, 58, 59, 49, 57, 2, 70, 28]),),
    ),
}
"""What is drawn of the key of seed 0, and what each version draws."""


@cache
def drawn() -> dict[str, Any]:
    """Every stream. Each process draws them once."""

    @jax.jit
    def draw(seed: Any) -> dict[str, Any]:
        key = random.wrap_key_data(seed, impl="threefry2x32")
        return {name: function(key) for name, (function, _) in STREAMS.items()}

    values = jax.device_get(draw(np.zeros(2, np.uint32)))
    return {name: plain(value) for name, value in values.items()}


def plain(values: Any) -> Any:
    """An array as lists, floats to three digits."""
    return (np.round(values.astype(float), 3) if values.dtype.kind == "f" else values).tolist()


for name, (_, known) in STREAMS.items():
    told = f"first draws of ``jax.random.{name.partition('_of_')[0]}``{' of int8' * ('_of_' in name)}"
    PROBES[f"draws_{name}"] = Probe("jax", told, partial(lambda name: drawn()[name], name), known, kind="draw")
