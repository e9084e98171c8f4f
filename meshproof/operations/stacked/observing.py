"""Stacked layers, seen once: where every array is, after init and after two steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from meshproof.measures.layout import LeafLayout, expected_shards, observe_layout
from meshproof.observing.members import origin
from meshproof.observing.seen import Failed, Seen
from meshproof.operations.stacked.plan import KERNELS, MESH, SHAPES, Plan, StackedLayers, Transformation


@dataclass(frozen=True)
class StackedCase:
    """Layers that are made in one way, their optimizer, and how many they are."""

    stack: StackedLayers
    transformation: Transformation
    plan: Plan

    @property
    def id(self) -> str:
        """As ``nnx_vmap-adam-6_layers@operations``."""
        over = f"_over_{self.plan.over}" if self.plan.over else ""
        return f"{self.stack.name}-{self.transformation.name}-{self.plan.layers}_layers{over}@operations"


@dataclass(frozen=True)
class Moment:
    """A moment in the life of the state: the layouts of each part's arrays, scalars left out, and the kernels of which
    two layers hold the same numbers."""

    when: str
    parts: Mapping[str, tuple[LeafLayout, ...]]
    alike: tuple[str, ...] = ()


def observe_stacked(case: StackedCase) -> Seen[tuple[Moment, ...]]:
    """Every moment; or what making or training the layers raised."""
    try:
        mesh = case.plan.mesh()
        return tuple(
            Moment(
                when,
                {part: layouts(tree, case.plan, mesh) for part, tree in trees.items()},
                tuple(alike(trees["parameters"])),
            )
            for when, trees in case.stack.train(case.plan, case.transformation.make())
        )
    except Exception as error:
        return Failed(f"expected layers that train, saw {type(error).__name__}: {error} ({origin(error)})")


def layouts(tree: Any, plan: Plan, mesh: Mesh) -> tuple[LeafLayout, ...]:
    """Where the arrays of a tree are, beside what is declared of the parameter that each is named for."""
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree) if leaf.ndim}

    def declared(path: str) -> Any:
        if (name := parameter_of(path)) is None:
            raise LookupError(f"{path}: expected an array of {', '.join(SHAPES)}, saw one of neither")
        return plan.spec(name)

    return observe_layout(leaves, mesh, declared)


def alike(parameters: Any) -> Iterator[str]:
    """The kernels that were drawn alike in two layers, as by one key."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        name = jax.tree_util.keystr(path)
        if parameter_of(name) in KERNELS:
            layers = np.asarray(leaf).reshape(len(leaf), -1)
            if len(np.unique(layers, axis=0)) < len(layers):
                yield name


def parameter_of(path: str) -> str | None:
    """The parameter that a key path names last."""
    named = [name for name in SHAPES if f"'{name}'" in path or path.endswith(f".{name}")]
    return named[-1] if named else None


def misplaced(case: StackedCase, moments: tuple[Moment, ...]) -> Iterator[str]:
    """A sentence for each array that is not where its parameter's axes are declared, for each that is not there, and
    for kernels that are drawn alike."""
    for moment in moments:
        for name in moment.alike:
            told = "expected each layer to be drawn by a key of its own, saw the same numbers in two"
            yield f"parameters{name}, {moment.when}: {told}"
        for part, leaves in moment.parts.items():
            for leaf in leaves:
                yield from faults(leaf, f"{part}{leaf.path} {leaf.shape}, {moment.when}", case.plan)
            kept = case.transformation.kept if part == "optimizer_state" else dict.fromkeys(SHAPES, 1)
            found = [parameter_of(leaf.path) for leaf in leaves]
            for name, count in kept.items():
                if found.count(name) != count:
                    saw = f"expected {count} arrays of {name}, saw {found.count(name)}"
                    yield f"{part}, {moment.when}: {saw}"


def faults(leaf: LeafLayout, where: str, plan: Plan) -> Iterator[str]:
    """What is wrong with one array: its shape, its axes, or what a device holds of it."""
    name = parameter_of(leaf.path)
    if leaf.declared is None or name is None:
        yield f"{where}: {leaf.undeclared}"
    elif leaf.shape != plan.shape(name):
        yield f"{where}: expected shape {plan.shape(name)}"
    else:
        expected = expected_shards(leaf.shape, leaf.declared, MESH)
        held = tuple((shard.position, shard.index) for shard in leaf.shards)
        if not leaf.as_declared or held != expected:
            position = next((one[0] for one, other in zip(expected, held, strict=False) if one != other), 0)
            parts = [dict(shards).get(position) for shards in (expected, held)]
            held_there = f"device {position} expected to hold {parts[0]}, holds {parts[1]}" if held != expected else ""
            yield f"{where}: expected {leaf.declared_spec}, is {leaf.placed}" + f"; {held_there}" * bool(held_there)
