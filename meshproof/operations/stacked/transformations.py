"""The optimizers whose state must be sharded as the stacked parameters are."""

from __future__ import annotations

from typing import Any

import jax
import optax

from meshproof.operations.stacked.plan import KERNELS, SHAPES, Transformation

ALL = tuple(SHAPES)


def by_name(tree: Any) -> Any:
    """The labels of a tree of parameters: ``kernel`` or ``bias``."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: "kernel" if any(part_name(key) in KERNELS for key in path) else "bias", tree
    )


def kernels(tree: Any) -> Any:
    """A mask of a tree of parameters: true for kernels."""
    return jax.tree.map(lambda label: label == "kernel", by_name(tree))


def part_name(key: Any) -> str:
    """The name in an entry of a key path, whatever its kind."""
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))


TRANSFORMATIONS = (
    Transformation("momentum", lambda: optax.sgd(0.1, momentum=0.9), dict.fromkeys(ALL, 1)),
    Transformation("adam", lambda: optax.adam(1e-3), dict.fromkeys(ALL, 2)),
    Transformation(
        "partition",
        lambda: optax.partition({"kernel": optax.adam(1e-3), "bias": optax.sgd(0.1, momentum=0.9)}, by_name),
        {"up": 2, "down": 2, "bias": 1},
    ),
    Transformation("masked", lambda: optax.masked(optax.adam(1e-3), kernels), dict.fromkeys(KERNELS, 2)),
    Transformation(
        "multi_steps", lambda: optax.MultiSteps(optax.adam(1e-3), 2).gradient_transformation(), dict.fromkeys(ALL, 3)
    ),
    Transformation(
        "inject_hyperparams", lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-3), dict.fromkeys(ALL, 2)
    ),
    Transformation("ema", lambda: optax.chain(optax.sgd(0.1, momentum=0.9), optax.ema(0.9)), dict.fromkeys(ALL, 2)),
)
"""``momentum`` and ``adam`` are tried with every number of layers, the others with one that divides no axis."""
