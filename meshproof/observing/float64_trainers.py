"""The trainer on one device in float64: by its own program, or as it makes itself for that dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from meshproof.contract import nest
from meshproof.hlo.arrays import element_types
from meshproof.observing.alike import Alike
from meshproof.observing.alone import on_one_device
from meshproof.observing.meshes_in_traces import meshes_in_traces
from meshproof.observing.probes import Probe, lowered
from meshproof.observing.programs import stage
from meshproof.observing.rounding import is_float
from meshproof.observing.state import array_leaves
from meshproof.observing.widened_programs import WIDER, in_float64


class Widened:
    """A trainer of float32 whose states, batches and steps are in float64, whatever float32 its code writes.

    To be used while ``jax.enable_x64`` holds. Its members raise what the trainer, JAX's tracing and `in_float64` raise.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.programs: dict[Any, tuple[Callable[..., Any], Callable[[Sequence[Any]], Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)

    def load(self, parameters: Any) -> Any:
        """The state that the trainer makes of these in float32, in float64."""
        with jax.enable_x64(False):
            state = self.trainer.load(jax.tree.map(_narrowed, parameters))
        return jax.tree.map(_widened, state)

    def train_step(self, state: Any, batch: Any) -> Any:
        """The next state, and the metrics."""
        return self._run("train_step", state, batch)

    def gradients(self, state: Any, batch: Any) -> Any:
        """Those of the loss."""
        return self._run("gradients", state, batch)

    def _run(self, member: str, *given: Any) -> Any:
        held, form = jax.tree.flatten(given)
        arrays = [_widened(leaf) for leaf in held if _is_array(leaf)]
        static = tuple(None if _is_array(leaf) else leaf for leaf in held)
        kind = (member, form, static, *((array.shape, array.dtype) for array in arrays))
        if kind not in self.programs:
            self.programs[kind] = _program(getattr(self.trainer, member), form, static, arrays)
        program, returned = self.programs[kind]
        return returned(program(*arrays))


def _program(
    member: Callable[..., Any], form: Any, static: Sequence[Any], arrays: Sequence[Any]
) -> tuple[Callable[..., Any], Callable[[Sequence[Any]], Any]]:
    """A member's program in float64, of arrays alone; and what makes of its results what the member returns."""
    seen: list[Any] = []

    def of_arrays(*arrays: Any) -> list[Any]:
        made, structure = jax.tree.flatten(member(*jax.tree.unflatten(form, _filled(static, arrays))))
        seen[:] = structure, [None if _is_array(leaf) else leaf for leaf in made]
        return [leaf for leaf in made if _is_array(leaf)]

    with jax.enable_x64(False), meshes_in_traces():
        program = jax.make_jaxpr(of_arrays)(*map(_narrowed, arrays))
    structure, others = seen
    return (
        jax.jit(lambda *arrays: in_float64(program, arrays)),
        lambda made: jax.tree.unflatten(structure, _filled(others, made)),
    )


def _filled(leaves: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Leaves with the arrays in the places of ``None``."""
    rest = iter(arrays)
    return [next(rest) if leaf is None else leaf for leaf in leaves]


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _widened(leaf: Any) -> Any:
    return _as(leaf, WIDER)


def _narrowed(leaf: Any) -> Any:
    return _as(leaf, {wide: single for single, wide in WIDER.items()})


def _as(leaf: Any, dtypes: dict[np.dtype[Any], np.dtype[Any]]) -> Any:
    """An array in the dtype that these give its own, on the same device; any other leaf as it is."""
    if getattr(leaf, "dtype", None) not in dtypes:
        return leaf
    other = np.asarray(leaf).astype(dtypes[leaf.dtype])
    return jax.device_put(other, leaf.sharding) if isinstance(leaf, jax.Array) else other


class NotTheSameError(Exception):
    """What a trainer makes of itself for float64 is another trainer, or computes in fewer digits."""


def of_float64(strategy: Any, training: Probe, single: Any) -> Any:
    """What ``single_device("float64")`` returns. ``single`` is the state that this training begins with in float32.

    Raises what the strategy raises, and `NotTheSameError`.
    """
    trainer = Alike(on_one_device(strategy, "float64"))
    double = training.in_float64()
    if not _begins_as(trainer.load(nest(double.parameters)), single):
        raise NotTheSameError("it begins with other numbers in float64")
    text = stage(lowered(trainer, double).compile(), "compiled").as_text()
    narrow = [name for name in element_types(text) if name.startswith(("f", "bf")) and name != "f64"]
    if narrow:
        raise NotTheSameError(f"its step in float64 has {', '.join(narrow)}")
    return trainer


def _begins_as(double: Any, single: Any) -> bool:
    """Whether two states have the same numbers, but for their rounding: what ``load`` draws, it draws otherwise in
    float64."""
    beside = dict(array_leaves(single))
    return all(
        np.allclose(array, beside[path], rtol=1e-4, atol=1e-6)
        for path, array in array_leaves(double)
        if path in beside and is_float(array)
    )
