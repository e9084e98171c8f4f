"""Stacked layers whose optimizer state is not where its parameters are."""

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.operations.stacked.observing import StackedCase
from meshproof.operations.stacked.plain import train
from meshproof.operations.stacked.plan import Plan, StackedLayers
from meshproof.operations.stacked.transformations import TRANSFORMATIONS

MOMENTUM, ADAM, *_ = TRANSFORMATIONS
PLAN = Plan(8)

PLANTED, CAUGHT_BY = [], {}


def plant(name, transformation, said=None, harm=lambda trees, mesh: trees):
    """Layers as plain trees, whose trees ``harm`` moves at each moment; ``said`` of it is a part of the message."""

    def harmed(plan, optimizer):
        for when, trees in train(plan, optimizer):
            yield when, harm(trees, plan.mesh())

    case = StackedCase(StackedLayers(name, harmed), transformation, PLAN)
    PLANTED.append(case)
    CAUGHT_BY[case.id] = {"OPS-3": said} if said else {}


def moved(trees, mesh, wanted, spec):
    """The trees with each array of optimizer state that is ``wanted``, by its key path, on other axes."""

    def move(path, leaf):
        there = wanted in jax.tree_util.keystr(path)
        return jax.device_put(leaf, NamedSharding(mesh, spec)) if there else leaf

    return {**trees, "optimizer_state": jax.tree_util.tree_map_with_path(move, trees["optimizer_state"])}


plant("healthy_momentum", MOMENTUM)
plant("healthy_adam", ADAM)
plant(
    "moment_on_the_wrong_axis",
    ADAM,
    r"\.nu\['up'\] \(8, 16, 32\), after init: expected P\S*\(None, 'data', 'model'\), is P\S*\('data', None, 'model'\)",
    lambda trees, mesh: moved(trees, mesh, ".nu['up']", PartitionSpec("data", None, "model")),
)
plant(
    "momentum_replicated",
    MOMENTUM,
    r"\['down'\] \(8, 32, 16\), after init: expected .*, is P\S*\(\) \(replicated\)",
    lambda trees, mesh: moved(trees, mesh, "['down']", PartitionSpec()),
)
plant(
    "layers_of_one_key",
    MOMENTUM,
    r"\['up'\], after init: expected each layer to be drawn by a key of its own, saw the same numbers in two",
    lambda trees, mesh: {
        **trees,
        "parameters": jax.tree.map(
            lambda leaf: jax.device_put(np.broadcast_to(leaf[:1], leaf.shape), leaf.sharding), trees["parameters"]
        ),
    },
)
plant(
    "gradient_forgotten",
    MOMENTUM,
    "gradients, after two steps: expected 1 arrays of bias, saw 0",
    lambda trees, mesh: {
        part: {name: leaf for name, leaf in tree.items() if name != "bias"} if part == "gradients" else tree
        for part, tree in trees.items()
    },
)
