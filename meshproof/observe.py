"""Runs and compiles one case, once, and returns everything the clauses need as a frozen `Observation`.

The order is: birth, placing canonical values, forward and gradients, the compiled programs, ``k`` train steps, a
second run of the same, and at last what must be refused. Whatever raises is recorded where it belongs and stops
nothing else.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np

from meshproof.cases import Case, has_member
from meshproof.compilations import compilations_of
from meshproof.contract import Batch, Leaves, Part, Step, leaves
from meshproof.hlo import HloError, census
from meshproof.hlo.host_transfers import host_transfers
from meshproof.layout import observe_layout, ranges
from meshproof.memory import program_memory
from meshproof.numerics import bitwise
from meshproof.observation import (
    STEPS,
    BatchLayout,
    Collision,
    Failed,
    Layouts,
    NotSupported,
    Observation,
    Program,
    Run,
    Seen,
)

T = TypeVar("T")


def observe(case: Case) -> Observation:
    """Observe a case on this process's devices. Raises only where no state can be made at all.

    Float32 matrix products are asked for at float32 precision, so that a device's faster default is not taken for a
    fault of the strategy.
    """
    with warnings.catch_warnings(record=True) as caught, jax.default_matmul_precision("float32"):
        warnings.simplefilter("default")
        seen = _Session(case).observe()
    texts = sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught})
    return Observation(case=case.id, warnings=tuple(texts), **seen)


class _Session:
    """One strategy under observation, with the states and batches that the facets share."""

    def __init__(self, case: Case) -> None:
        self.strategy: Any = case.strategy
        self.case = case
        self.host_batches: list[Batch] = list(self.strategy.batches(STEPS))

    def observe(self) -> dict[str, Any]:
        born = self.strategy.init(jax.random.key(0))
        at_birth = self.attempt(lambda: self.layouts(born))
        state = self.fresh() if self.canonical_start else born
        seen: dict[str, Any] = {
            "at_birth": at_birth,
            "before": self.attempt(lambda: self.layouts(state)),
            "batch": self.attempt(self.batch_layout, "shard_batch"),
            "initial": self.attempt(lambda: host(self.strategy.parameters(state)), "parameters"),
            "forward_loss": self.attempt(lambda: float(self.strategy.loss(state, self.batches[0])), "loss"),
            "forward": self.attempt(lambda: self.program("loss", state), "loss"),
            "step": self.attempt(lambda: self.program("train_step", state), "train_step"),
        }
        seen["gradients"], seen["promotions"] = self.gradients(state)
        where = layout_of(state)
        final, seen["run"] = self.train(state)
        seen["after"] = self.attempt(lambda: self.layouts(final))
        seen["moved"] = self.attempt(lambda: moved(where, layout_of(final)))
        seen["replicas_differ"] = self.attempt(lambda: tuple(replicas_differ(final)))
        seen["rerun_differs"] = self.attempt(lambda: self.rerun(final))
        seen["implicit_transfers"] = self.attempt(lambda: self.implicit_transfers(final))
        seen["batch_error"] = self.attempt(self.batch_error, "shard_batch")
        seen["mesh_error"] = self.attempt(self.mesh_error, "make_mesh")
        seen["collision"] = self.attempt(self.collision, "logical_axes", "lay_out")
        return seen

    def attempt(self, look: Callable[[], T], *members: str) -> Seen[T]:
        """What ``look`` sees; or that a member is absent, or what it raised and where."""
        absent = [member for member in members if not has_member(self.strategy, member)]
        if absent:
            return NotSupported(f"the strategy has no {' and no '.join(absent)}")
        try:
            return look()
        except Exception as error:
            origin = traceback.extract_tb(error.__traceback__)[-1]
            return Failed(f"{type(error).__name__}: {error} ({origin.filename}:{origin.lineno} in {origin.name})")

    @property
    def canonical_start(self) -> bool:
        return has_member(self.strategy, "load") and has_member(self.strategy, "truth")

    def fresh(self) -> Any:
        """The state that every run starts from: canonical values where the strategy can hold them."""
        if self.canonical_start:
            return self.strategy.load(self.strategy.truth.initial_parameters())
        return self.strategy.init(jax.random.key(0))

    @cached_property
    def batches(self) -> list[Any]:
        place = self.strategy.shard_batch if has_member(self.strategy, "shard_batch") else lambda batch: batch
        return [place(batch) for batch in self.host_batches]

    def layouts(self, state: Any) -> Layouts:
        arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
        return Layouts(
            parameters=self.attempt(lambda: self.part("parameters", state), "parameters"),
            optimizer_state=self.attempt(lambda: self.part("optimizer_state", state), "optimizer_state"),
            state_bytes=bytes_per_device(arrays),
            scalar_bytes=bytes_per_device([array for array in arrays if array.ndim == 0]),
        )

    def part(self, part: Part, state: Any) -> Any:
        tree = dict(leaves(getattr(self.strategy, part)(state)))
        if unmatched := self.case.contract.unmatched(part, tree):
            raise LookupError(
                f"the contract declares {part} {unmatched}, but of the leaves {sorted(tree)} none matches"
            )
        return observe_layout(tree, self.strategy.mesh, self.declared(part))

    def declared(self, part: Part) -> Callable[[str], Any] | None:
        contract = self.case.contract
        if getattr(contract, part) is None:
            return None
        return lambda path: contract.spec(part, path)

    def batch_layout(self) -> BatchLayout:
        placed = dict(leaves(self.batches[0]))
        host_leaves = dict(leaves(self.host_batches[0]))
        displaced = [
            f"{path} on device {shard.device.id}"
            for path, array in placed.items()
            for shard in array.addressable_shards
            if path in host_leaves and not np.array_equal(np.asarray(shard.data), host_leaves[path][shard.index])
        ]
        return BatchLayout(observe_layout(placed, self.strategy.mesh, self.declared("batch")), tuple(displaced))

    def gradients(self, state: Any) -> tuple[Seen[Leaves], Seen[tuple[str, ...]]]:
        """The gradients, and what tracing them raises where JAX may not promote dtypes implicitly.

        The optimizer is not asked: optax itself raises a decay rate to an integer step count.
        """

        def run() -> Seen[Leaves]:
            return self.attempt(lambda: host(self.strategy.gradients(state, self.batches[0])), "gradients")

        with jax.numpy_dtype_promotion("strict"):
            strict = run()
        if isinstance(strict, Failed) and "promotion" in strict.reason:
            return run(), (strict.reason,)
        return strict, () if isinstance(strict, dict) else strict

    def program(self, member: str, state: Any) -> Program:
        """Compile ``loss`` or ``train_step`` ahead of time; JAX shares the executable with the later call."""
        function = getattr(self.strategy, member)
        if not hasattr(function, "lower"):
            raise TypeError(f"{member} has no lower(): hand over the jitted function itself, or give it one")
        start = time.perf_counter()
        compiled = function.lower(state, self.batches[0]).compile()
        seconds = time.perf_counter() - start
        text = compiled.as_text()
        cost = compiled.cost_analysis() or {}
        memory = program_memory(compiled)
        return Program(
            collectives=self.census(text),
            memory=memory or NotSupported("the backend gives no memory analysis"),
            flops=float(cost.get("flops", float("nan"))),
            compile_seconds=seconds,
            host_transfers=host_transfers(text),
        )

    def census(self, text: str) -> Any:
        try:
            return census(text, self.case.mesh)
        except HloError as error:
            return Failed(f"the compiled program cannot be read: {error}")

    def train(self, state: Any) -> tuple[Any, Seen[Run]]:
        """``k`` steps with everything recorded; the state that they leave, or the last one that was whole."""
        steps, compilations = [], []
        try:
            for batch in self.batches:
                with compilations_of() as events:
                    state, metrics = self.strategy.train_step(state, batch)
                    jax.block_until_ready(metrics)
                compilations.append(tuple(events))
                steps.append(self.numbers(state, metrics))
        except Exception as error:
            return state, Failed(f"train step {len(steps) + 1} raised {type(error).__name__}: {error}")
        return state, Run(tuple(steps), tuple(compilations))

    def numbers(self, state: Any, metrics: Mapping[str, Any]) -> Step:
        parts = (
            host(getattr(self.strategy, part)(state)) if has_member(self.strategy, part) else {}
            for part in ("parameters", "optimizer_state")
        )
        return Step(float(metrics["loss"]), *parts)

    def rerun(self, first: Any) -> tuple[str, ...]:
        """Leaves of the state that a second run from the same values leaves with other bits."""
        expected = {path: np.asarray(array) for path, array in array_leaves(first)}
        state = self.fresh()
        for batch in self.batches:
            state, _ = self.strategy.train_step(state, batch)
        seen = {path: np.asarray(array) for path, array in array_leaves(state)}
        verdict = bitwise(expected, seen, names=("the first run", "the second run"))
        return tuple(f"{record.path} {record.detail}" for record in verdict.failures)

    def implicit_transfers(self, state: Any) -> tuple[str, ...]:
        """What one more step raises where arrays may not be moved between host and devices implicitly."""
        with jax.transfer_guard("disallow"):
            try:
                jax.block_until_ready(self.strategy.train_step(state, self.batches[-1])[1])
            except Exception as error:
                if "transfer" not in str(error):
                    raise
                return (str(error).splitlines()[0],)
        return ()

    def batch_error(self) -> str:
        """What a batch that lacks its last example is refused with; empty where it is not refused."""
        short = {field: value[:-1] for field, value in self.host_batches[0].items()}
        try:
            jax.block_until_ready(self.strategy.shard_batch(short))
        except Exception as error:
            return str(error)
        return ""

    def mesh_error(self) -> str:
        """What a machine that lacks one device is refused with; empty where it is not refused."""
        try:
            self.strategy.make_mesh(list(self.strategy.mesh.devices.flat)[:-1])
        except Exception as error:
            return str(error)
        return ""

    def collision(self) -> Collision:
        """What rules are refused with that would split one array along one mesh axis twice."""
        several = ((path, axes) for path, axes in leaves(self.strategy.logical_axes) if len(set(axes)) > 1)
        path, (one, other) = next((path, tuple(dict.fromkeys(axes))[:2]) for path, axes in several)
        axis = next(iter(self.case.mesh))
        self.strategy.lay_out({one: axis})
        try:
            self.strategy.lay_out({one: axis, other: axis})
        except Exception as error:
            return Collision(path, (one, other), axis, str(error))
        return Collision(path, (one, other), axis, "")


def host(tree: Any) -> Leaves:
    """A canonical tree as host arrays by path."""
    return {path: np.asarray(array) for path, array in leaves(tree)}


def array_leaves(state: Any) -> list[tuple[str, jax.Array]]:
    """Every array of a state, canonical or not, by JAX's key path."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in flat if isinstance(leaf, jax.Array)]


def layout_of(state: Any) -> dict[str, tuple[Any, int]]:
    """Each array's sharding and rank, taken before a step donates it."""
    return {path: (array.sharding, array.ndim) for path, array in array_leaves(state)}


def moved(before: dict[str, tuple[Any, int]], after: dict[str, tuple[Any, int]]) -> tuple[str, ...]:
    """Leaves whose sharding is not equivalent to what it was, or that are new or gone."""
    return tuple(
        path
        for path in before | after
        if path not in before or path not in after or not after[path][0].is_equivalent_to(*before[path])
    )


def replicas_differ(state: Any) -> Iterator[str]:
    """Leaves of which two devices hold the same part with other bits."""
    for path, array in array_leaves(state):
        first: dict[Any, Any] = {}
        for shard in array.addressable_shards:
            one: Any = first.setdefault(ranges(shard.index, array.shape), shard)
            names = (f"device {one.device.id}", f"device {shard.device.id}")
            failures = bitwise({path: np.asarray(one.data)}, {path: np.asarray(shard.data)}, names=names).failures
            if failures:
                yield f"{path} {failures[0].detail}"
                break


def bytes_per_device(arrays: list[jax.Array]) -> int:
    """Bytes that these arrays take on the fullest device."""
    held: dict[jax.Device, int] = {}
    for array in arrays:
        for shard in array.addressable_shards:
            held[shard.device] = held.get(shard.device, 0) + shard.data.nbytes
    return max(held.values(), default=0)
