"""Runs and compiles one case, once, and returns everything the clauses need as a frozen `Observation`.

The order is: birth, placing canonical values, forward and gradients, the compiled programs, ``k`` train steps, a
second run of the same, and at last what must be refused. Whatever raises is recorded where it belongs and stops
nothing else.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Judgement, Leaves, Part, Step, Tree, leaves
from meshproof.hlo.arrays import held_arrays
from meshproof.measures.layout import LeafLayout, observe_layout
from meshproof.measures.numerics import bitwise
from meshproof.measures.verdicts import Verdict
from meshproof.observing.compilations import compilations_of
from meshproof.observing.members import (
    canonical,
    evaluated,
    host_batches,
    loss_of,
    no_layout,
    origin,
    parameter_paths,
    scalar,
    shown,
    state_and_metrics,
)
from meshproof.observing.observation import (
    STEPS,
    BatchLayout,
    Failed,
    Layouts,
    NotSupported,
    Observation,
    Program,
    Run,
    Seen,
    Warned,
    no_lower,
)
from meshproof.observing.programs import compile_program
from meshproof.observing.refusals import Refusals
from meshproof.observing.single_device_truth import measure
from meshproof.observing.state import (
    annotated,
    array_leaves,
    bytes_per_device,
    displaced,
    finite_state,
    host,
    in_model_order,
    is_scalar,
    layout_of,
    moved,
    replicas,
)

T = TypeVar("T")
U = TypeVar("U")
STATE: tuple[Part, ...] = ("parameters", "optimizer_state")


def observe(case: Case) -> Observation:
    """Observe a case on this process's devices. Raises only where no state can be made at all.

    Float32 matrix products are asked for at float32 precision, so that a device's faster default is not taken for a
    fault of the strategy.
    """
    with warnings.catch_warnings(record=True) as caught, jax.default_matmul_precision("float32"):
        warnings.simplefilter("default")
        seen = _Session(case).observe()
    told = {Warned(each.category.__name__, str(each.message), _place(each.filename, each.lineno)) for each in caught}
    return Observation(case=case.id, warnings=tuple(sorted(told)), **seen)


def _place(file: str, line: int) -> str:
    """A line of code, by the path that it is imported from."""
    roots = [root for root in map(Path, sys.path) if root in Path(file).parents]
    return f"{Path(file).relative_to(max(roots, key=lambda root: len(root.parts), default=Path()))}:{line}"


class _Session:
    """One strategy under observation, with the states and batches that the facets share."""

    def __init__(self, case: Case) -> None:
        self.strategy: Any = case.strategy
        self.case = case
        self.host_batches: list[Batch] = host_batches(self.strategy.batches(STEPS), STEPS)

    def observe(self) -> dict[str, Any]:
        held_at_birth = self.attempt(self.held_at_birth)
        born = self.strategy.init(jax.random.key(0))
        if not array_leaves(born):
            raise TypeError(f"init returned {shown(born)}, expected a pytree of jax.Array; JAX finds none in it")
        at_birth = self.attempt(lambda: self.layouts(born))
        state = self.fresh() if self.canonical_start else born
        seen: dict[str, Any] = {
            "annotated": self.attempt(lambda: annotated(born, self.strategy.mesh)),
            "at_birth": at_birth,
            "held_at_birth": held_at_birth,
            "before": self.attempt(lambda: self.layouts(state)),
            "batch": self.attempt(self.batch_layout, "shard_batch"),
            "initial": self.attempt(lambda: self.host(self.tree("parameters", state)), "parameters"),
            "forward_loss": self.attempt(lambda: scalar(self.strategy.loss(state, self.batches[0]), "loss"), "loss"),
            "forward": self.attempt(lambda: self.program("loss", state), "loss"),
            "step": self.attempt(lambda: self.program("train_step", state), "train_step"),
        }
        seen["own_truth"] = self.then(seen["initial"], self.own_truth)
        gradients, seen["promotions"] = self.gradients(state)
        seen["gradients"] = self.then(gradients, self.host)
        seen["gradient_layout"] = self.then(gradients, lambda tree: self.layout("gradients", tree))
        with jax.numpy_dtype_promotion("standard" if seen["promotions"] else "strict"):  # the same, not traced anew
            seen["unchecked_gradients"] = self.attempt(
                lambda: host(self.strategy.unchecked_gradients(state, self.batches[0])), "unchecked_gradients"
            )
        where = layout_of(state)
        final, seen["run"] = self.train(state)
        seen["after"] = self.attempt(lambda: self.layouts(final))
        seen["moved"] = self.attempt(lambda: moved(where, layout_of(final)))
        seen["finite"] = self.attempt(lambda: finite_state(self.held(final)))
        seen["replicas"] = self.attempt(lambda: replicas(self.shown(final)))
        seen["evaluation"] = self.attempt(lambda: evaluated(self.strategy, final, self.host_batches), "evaluate")
        seen["rerun"] = self.attempt(lambda: self.rerun(final))
        seen["implicit_transfers"] = self.attempt(lambda: self.implicit_transfers(final), "shard_batch")
        refusals = Refusals(self.case, self.host_batches[0], self.fresh)
        seen["batch_error"] = self.attempt(refusals.short_batch, "shard_batch")
        seen["dimension_errors"] = self.attempt(refusals.missing_dimension)
        seen["mesh_error"] = self.attempt(refusals.small_machine, "make_mesh")
        return seen

    def attempt(self, look: Callable[[], T], *members: str) -> Seen[T]:
        """What ``look`` sees; or that a member is absent, or what it raised and where."""
        absent = [member for member in members if not has_member(self.strategy, member)]
        if absent:
            return NotSupported(f"the strategy has no {' and no '.join(absent)}")
        try:
            return look()
        except Exception as error:
            return Failed(f"{type(error).__name__}: {error} ({origin(error)})")

    def then(self, seen: Seen[T], look: Callable[[T], U]) -> Seen[U]:
        """What ``look`` sees in what was seen, if it was."""
        return seen if isinstance(seen, NotSupported | Failed) else self.attempt(lambda: look(seen))

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
            arrays=observe_layout(dict(array_leaves(state)), self.strategy.mesh, None),
            parameters=self.attempt(lambda: self.part("parameters", state), "parameters"),
            optimizer_state=self.attempt(lambda: self.part("optimizer_state", state), "optimizer_state"),
            state_bytes=bytes_per_device(arrays),
            scalar_bytes=bytes_per_device([array for array in arrays if is_scalar(array)]),
        )

    def held_at_birth(self) -> Any:
        """The arrays that a device holds while ``init`` runs, where that is one compiled program."""
        if not hasattr(self.strategy.init, "lower"):
            return no_lower("init")
        return held_arrays(self.strategy.init.lower(jax.random.key(0)).compile().as_text())

    def part(self, part: Part, state: Any) -> tuple[LeafLayout, ...] | NotSupported:
        if has_member(self.strategy, "at_rest"):
            return self.layout(part, self.strategy.at_rest(state)[part])
        return self.layout(part, self.tree(part, state))

    def tree(self, part: Part, state: Any) -> Tree:
        return canonical(getattr(self.strategy, part)(state), part)

    def layout(self, part: Part, tree: Tree) -> tuple[LeafLayout, ...] | NotSupported:
        found = dict(in_model_order(leaves(tree), self.model))
        for said in ("parameters", "computed") if part == "parameters" else (part,):
            if unmatched := self.case.contract.unmatched(said, found):
                raise LookupError(
                    f"the contract declares {said} {unmatched}, but of the leaves {sorted(found)} none matches, or one "
                    f"that does is taken by a pattern before it"
                )
        return no_layout(part, found) or observe_layout(found, self.strategy.mesh, self.declared(part))

    def declared(self, part: Part) -> Callable[[str], Any] | None:
        contract = self.case.contract
        if getattr(contract, part) is None:
            return None
        return lambda path: contract.spec(part, path)

    def batch_layout(self) -> BatchLayout:
        placed = dict(leaves(canonical(self.batches[0], "shard_batch")))
        fields = observe_layout(placed, self.strategy.mesh, self.declared("batch"))
        return BatchLayout(fields, displaced(placed, host(self.host_batches[0])))

    def own_truth(self, start: Leaves) -> Seen[Judgement]:
        if has_member(self.strategy, "truth"):
            return NotSupported("the implementation brings its truth")
        return self.attempt(lambda: measure(self.case, start, self.host_batches), "single_device")

    def gradients(self, state: Any) -> tuple[Seen[Tree], Seen[tuple[str, ...]]]:
        """The gradients, and what tracing them raises where JAX may not promote dtypes implicitly.

        The optimizer is not asked: optax itself raises a decay rate to an integer step count.
        """

        def run() -> Seen[Tree]:
            return self.attempt(
                lambda: canonical(self.strategy.gradients(state, self.batches[0]), "gradients"), "gradients"
            )

        with jax.numpy_dtype_promotion("strict"):
            strict = run()
        if isinstance(strict, Failed) and "promotion" in strict.reason:
            return run(), (strict.reason,)
        return strict, strict if isinstance(strict, NotSupported | Failed) else ()

    def program(self, member: str, state: Any) -> Program | NotSupported:
        """``loss`` or ``train_step``, compiled ahead of time; JAX shares the executable with the later call."""
        function = getattr(self.strategy, member)
        if not hasattr(function, "lower"):
            return no_lower(member)
        return compile_program(function, state, self.batches[0], self.case.mesh)

    def train(self, state: Any) -> tuple[Any, Seen[Run]]:
        """``k`` steps with everything recorded; the state that they leave, or the last one that was whole."""
        steps, compilations = [], []
        try:
            for batch in self.batches:
                with compilations_of() as events:
                    state, metrics = state_and_metrics(self.strategy.train_step(state, batch))
                    jax.block_until_ready(metrics)
                compilations.append(tuple(events))
                steps.append(self.numbers(state, metrics))
        except Exception as error:
            return state, Failed(f"train step {len(steps) + 1} raised {type(error).__name__}: {error}")
        return state, Run(tuple(steps), tuple(compilations))

    def numbers(self, state: Any, metrics: Mapping[str, Any]) -> Step:
        parts = (self.host(self.tree(part, state)) if has_member(self.strategy, part) else {} for part in STATE)
        return Step(loss_of(metrics), *parts)

    @cached_property
    def model(self) -> tuple[str, ...]:
        return parameter_paths(self.strategy, self.fresh)

    def host(self, tree: Tree) -> Leaves:
        return dict(in_model_order(host(tree).items(), self.model))

    def held(self, state: Any) -> list[tuple[str, jax.Array]]:
        return in_model_order(array_leaves(state), self.model)

    def shown(self, state: Any) -> list[tuple[str, jax.Array]]:
        """The arrays of a state, and those on devices of the canonical trees where these are made of it."""
        held = {id(leaf[1]): leaf for leaf in self.held(state)}
        parts = [part for part in STATE if has_member(self.strategy, part) and not has_member(self.strategy, "at_rest")]
        made = [leaf for part in parts for leaf in leaves(self.tree(part, state)) if isinstance(leaf[1], jax.Array)]
        return [*held.values(), *(leaf for leaf in made if id(leaf[1]) not in held)]

    def rerun(self, first: Any) -> Verdict:
        """Whether a second run from the same values leaves the same bits in the state."""
        expected = {path: np.asarray(array) for path, array in self.held(first)}
        state = self.fresh()
        for batch in self.batches:
            state, _ = self.strategy.train_step(state, batch)
        seen = {path: np.asarray(array) for path, array in array_leaves(state)}
        return bitwise(expected, seen, f"state after {STEPS} steps", ("the first run", "the second run"))

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
