"""Train steps in which what is not a number stays so.

XLA:CPU hands sums of maxima to YNNPACK, which drops NaN: since jaxlib 0.10.2 ``x.max(1)`` of (32, 144) NaN is −inf, and
``jax.jit(lambda x: jnp.maximum(x, 0).sum(1))(x)`` is 0, while of (32, 64) both are NaN. One device, which has all rows,
so forgets an example that is not finite, and a mesh does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax

WITHOUT_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}


COMPILED_BY = ("jaxlib", "flax")
"""Whose steps do nothing but run their program. A wrapper of the trainer's own may look at its loss on the host."""


def propagating(train_step: Any) -> Any:
    """The step, compiled without YNNPACK where it is its program and no more; elsewhere as it is."""
    return _propagating(train_step) if is_its_program(train_step) else train_step


def may_drop_nan(train_step: Any) -> bool:
    """Whether XLA:CPU may forget an example that is not finite in a step: in one that is wrapped."""
    return jax.default_backend() == "cpu" and not is_its_program(train_step)


def is_its_program(train_step: Any) -> bool:
    """Whether a step does nothing but run its program, which can be compiled otherwise."""
    return type(train_step).__module__.partition(".")[0] in COMPILED_BY


@lru_cache(maxsize=4)
def _propagating(train_step: Any) -> Callable[..., Any]:
    programs: dict[Any, Callable[..., Any]] = {}

    def step(state: Any, batch: Any) -> Any:
        held, form = jax.tree.flatten((state, batch))
        try:
            kind = form, *((jax.typeof(leaf), getattr(leaf, "sharding", None)) for leaf in held)
            if kind not in programs:
                programs[kind] = train_step.lower(state, batch).compile(compiler_options=WITHOUT_YNNPACK)
        except Exception:  # a leaf that is no array, a compiler that knows no such option
            return train_step(state, batch)
        return programs[kind](state, batch)

    return step
