"""The optimizers of the truth as optax transformations, and their state as canonical trees."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax.sharding import PartitionSpec

from reference_impl.truth import Adam, AveragedMomentum, Momentum

Optimizer = Momentum | AveragedMomentum | Adam

MOMENTS: dict[type, tuple[str, ...]] = {Momentum: ("momentum",), AveragedMomentum: ("momentum",), Adam: ("mu", "nu")}
"""The canonical state's subtrees, each shaped as the parameters."""


def transformation(optimizer: Optimizer) -> optax.GradientTransformation:
    """The optax form. Only the averaging momentum, ``m = d·m + (1−d)·g``, has no ready-made alias."""
    if isinstance(optimizer, Adam):
        return optax.adam(optimizer.learning_rate, b1=optimizer.b1, b2=optimizer.b2, eps=optimizer.eps)
    if isinstance(optimizer, AveragedMomentum):
        average = optax.ema(optimizer.decay, debias=False)
        return optax.chain(average, optax.scale_by_learning_rate(optimizer.learning_rate))
    return optax.sgd(optimizer.learning_rate, momentum=optimizer.decay)


def canonical(optimizer: Optimizer, state: Any) -> dict[str, Any]:
    """The canonical tree of an optax state: ``{"momentum": tree}``, or Adam's ``{"mu", "nu", "count"}``."""
    if isinstance(optimizer, Adam):
        return {name: optax.tree_utils.tree_get(state, name) for name in ("mu", "nu", "count")}
    name = "ema" if isinstance(optimizer, AveragedMomentum) else "trace"
    return {"momentum": optax.tree_utils.tree_get(state, name)}


def specs(transform: optax.GradientTransformation, parameters: Any, parameter_specs: Any) -> Any:
    """The ``PartitionSpec`` of each leaf of the optax state: as the parameter's, or replicated for counters."""
    state = jax.eval_shape(transform.init, parameters)
    return optax.tree_utils.tree_map_params(
        transform,
        lambda _, spec: spec,
        state,
        parameter_specs,
        transform_non_params=lambda _: PartitionSpec(),
    )
