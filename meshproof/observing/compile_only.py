"""One case, seen through the compiler of devices that are not here: programs, layouts and memory, and no numbers.

Every array is abstract: a shape, a dtype and a sharding. So a state of any size is looked at on any machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.cases import Case, has_member
from meshproof.contract import Part, Tree, leaves
from meshproof.hlo.arrays import held_arrays
from meshproof.measures.layout import observe_layout
from meshproof.observing.auxiliary import Auxiliary
from meshproof.observing.compilers import Compiler, Made, Placement, default_devices
from meshproof.observing.draws import Draws
from meshproof.observing.gradients import Gradients
from meshproof.observing.initialisation import Initialisation
from meshproof.observing.layouts import Layouts, declared, observe_layouts
from meshproof.observing.members import batches_of, canonical
from meshproof.observing.observation import Observation
from meshproof.observing.programs import Program, Programs, read_program, stage, with_schedule
from meshproof.observing.refusals import Refusals
from meshproof.observing.seen import NOT_RUN, Failed, NotSupported, Seen, Unseen, no_lower
from meshproof.observing.session import warnings_of
from meshproof.observing.single_device_truth import SingleDevice
from meshproof.observing.start import BatchLayout, Start
from meshproof.observing.state import annotated, array_leaves, bytes_per_device, layout_of, moved
from meshproof.observing.subject import LacksMemberError, NeedsArraysError, Subject
from meshproof.observing.training import Training


class AbstractSubject(Subject):
    """A strategy on the devices of a target that only compiles. Raises where it gives neither a state nor a batch."""

    def __init__(self, case: Case, compiler: Compiler) -> None:
        self.case, self.compiler = case, compiler
        own: Any = case.strategy
        self.strategy = own.on(compiler.devices) if has_member(own, "on") else own
        self.key = jax.eval_shape(lambda: jax.random.key(0))

    @cached_property
    def batches(self) -> list[Any]:
        """The first batch, abstract: as the strategy says, or as its contract lays out what ``batches`` gives."""
        if self.has("abstract_batch"):
            return [self.strategy.abstract_batch()]
        contract = self.case.contract
        if contract.batch is None or contract.device_dimension:
            raise LacksMemberError(
                "no abstract batch: bring abstract_batch(), a dict of jax.ShapeDtypeStruct with shardings, or a "
                "contract that declares the layout of each field of a batch"
            )
        [batch] = batches_of(self.strategy, 1)
        return [jax.tree.map(self.abstract, dict(batch), self.specs("batch", batch))]

    def abstract(self, array: Any, spec: PartitionSpec, kind: str | None = None) -> jax.ShapeDtypeStruct:
        """An array as a placed one would be."""
        dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
        sharding = NamedSharding(self.strategy.mesh, spec, memory_kind=kind)
        return jax.ShapeDtypeStruct(np.shape(array), jax.dtypes.canonicalize_dtype(dtype), sharding=sharding)

    def specs(self, part: Part, tree: Any) -> Any:
        """The declared ``PartitionSpec`` of each leaf of a canonical tree."""
        by_path = {id(leaf): self.case.contract.spec(part, path) for path, leaf in leaves(tree)}
        return jax.tree.map(lambda leaf: by_path[id(leaf)], dict(tree))

    @cached_property
    def lowered(self) -> Any:
        """``init``, lowered."""
        return stage(self.strategy.init.lower(self.key), "lowered")

    @cached_property
    def initialised(self) -> tuple[Any, Made]:
        """The abstract state that ``init`` returns, and its compiled program. Raises what making either raises."""
        if not hasattr(self.strategy.init, "lower"):
            raise NotImplementedError(no_lower("init").reason)
        lowered = self.lowered
        made = self.compiler.compile(lowered, self.strategy.mesh)
        shapes = jax.tree.leaves(lowered.out_info)
        return jax.tree.unflatten(self.tree_of_state(lowered), self.placed(shapes, made.outputs, "init")), made

    def tree_of_state(self, lowered: Any) -> Any:
        """The tree of the state that ``init`` returns. Where a library wraps JAX's own stage, as ``nnx.jit`` does, its
        outputs are the leaves of another one. Raises ``TypeError`` where these are not as many, or of other shapes."""
        if self.has("abstract_state"):
            return jax.tree.structure(self.strategy.abstract_state())
        abstract = jax.eval_shape(self.strategy.init, self.key)
        made, returned = (
            [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (lowered.out_info, abstract)
        )
        if made != returned:
            raise TypeError(
                f"init returns {len(returned)} arrays, its program {len(made)}, in another order or of other shapes: "
                f"bring abstract_state(), the state with a jax.ShapeDtypeStruct for each array"
            )
        return jax.tree.structure(abstract)

    def placed(self, shapes: list[Any], outputs: Sequence[Placement | None], what: str) -> list[jax.ShapeDtypeStruct]:
        """The first outputs of a program, as it places them. ``TypeError`` where no ``PartitionSpec`` says how."""
        unsaid = [number for number, placement in enumerate(outputs[: len(shapes)]) if placement is None]
        if unsaid:
            raise TypeError(f"outputs {unsaid} of {what}: expected them over the strategy's mesh by a PartitionSpec")
        return [self.abstract(shape, *placed) for shape, placed in zip(shapes, outputs, strict=False) if placed]

    @cached_property
    def state(self) -> Any:
        """The abstract state that training starts from: as the strategy says, or as ``init`` returns it."""
        if self.has("abstract_state"):
            return self.strategy.abstract_state()
        if hasattr(self.strategy.init, "lower"):
            said = all(getattr(leaf, "sharding", None) is not None for leaf in jax.tree.leaves(self.lowered.out_info))
            seen = self.attempt(lambda: self.initialised[0])
            if isinstance(seen, Failed) and said:
                return jax.tree.unflatten(self.tree_of_state(self.lowered), jax.tree.leaves(self.lowered.out_info))
            return self.initialised[0]
        return self.laid_out(jax.eval_shape(self.strategy.init, self.key))

    def laid_out(self, state: Any) -> Any:
        """A state of shapes, laid out as the contract declares. Raises ``LookupError`` where it does not say how."""
        parts: tuple[Part, ...] = ("parameters", "optimizer_state", "auxiliary")
        specs = {
            id(leaf): self.case.contract.spec(part, path)
            for part in parts
            if self.has(part) and getattr(self.case.contract, part) is not None
            for path, leaf in leaves(getattr(self.strategy, part)(state))
        }
        if silent := [path for path, leaf in array_leaves(state) if leaf.shape and id(leaf) not in specs]:
            raise LookupError(
                f"no layout of {len(silent)} arrays of the state, first {silent[0]}: init has no lower(), and the "
                f"contract declares none of them; jit init with out_shardings, or bring abstract_state()"
            )
        return jax.tree.map(lambda leaf: self.abstract(leaf, specs.get(id(leaf), PartitionSpec())), state)

    @cached_property
    def model(self) -> tuple[str, ...]:
        """The paths of the parameters, where these are arrays of the state."""
        seen = self.attempt(lambda: [path for path, _ in leaves(self.tree("parameters", self.state))], "parameters")
        return () if isinstance(seen, Unseen) else tuple(seen)

    def tree(self, part: Part, state: Any) -> Tree:
        """A part of a state, where the strategy picks it out. Raises `NeedsArraysError` where it computes it."""
        try:
            shown = getattr(self.strategy, part)(state)
        except Exception as error:
            raise NeedsArraysError(
                f"{part}(state) is computed from arrays, and this target has none ({type(error).__name__}: {error}); "
                f"at_rest(state) shows those of the state itself"
            ) from error
        return canonical(shown, part)

    def fresh(self) -> Any:
        """The abstract state."""
        return self.state


def observe_compile_only(case: Case, compiler: Compiler) -> Observation:
    """Observe a case through a compiler. Raises only where no abstract state or batch can be made."""
    with (
        warnings.catch_warnings(record=True) as caught,
        jax.default_matmul_precision("float32"),
        default_devices(compiler.devices),
    ):
        warnings.simplefilter("default")
        subject = AbstractSubject(case, compiler)
        initialisation, start = _initialisation(subject), _start(subject)
        forward, _ = _program(subject, "loss")
        step, after = _program(subject, "train_step")
        with jax.default_matmul_precision(None):
            usual, _ = _program(subject, "train_step")
        training = _training(subject, after)
    return Observation(
        case=case.id,
        initialisation=initialisation,
        start=start,
        programs=Programs(forward, step, usual),
        single_device=SingleDevice.unseen(NOT_RUN),
        auxiliary=Auxiliary.unseen(NOT_RUN),
        gradients=Gradients.unseen(NOT_RUN),
        training=training,
        lost_examples=NOT_RUN,
        probes=NOT_RUN,
        draws=Draws.unseen(NOT_RUN),
        refusals=Refusals.unseen(NOT_RUN),
        warnings=warnings_of(caught),
    )


def _initialisation(subject: AbstractSubject) -> Initialisation:
    if not hasattr(subject.strategy.init, "lower"):
        return Initialisation.unseen(no_lower("init"))
    seen = subject.attempt(lambda: subject.initialised)
    return Initialisation(
        held=subject.then(seen, lambda seen: held_arrays(seen[1].program.text)),
        parameters=NOT_RUN,
        alone=NOT_RUN,
        types=NOT_RUN,
        layouts=_layouts(subject, subject.then(seen, lambda seen: seen[0])),
        annotated=subject.then(seen, lambda seen: annotated(seen[0], subject.strategy.mesh)),
    )


def _start(subject: AbstractSubject) -> Start:
    mesh, specs = subject.strategy.mesh, declared(subject, "batch")
    fields = subject.attempt(lambda: observe_layout(dict(leaves(subject.batches[0])), mesh, specs))
    return Start(
        layouts=observe_layouts(subject, subject.state),
        batch=BatchLayout(fields, displaced=NOT_RUN),
        parameters=NOT_RUN,
        loss=NOT_RUN,
    )


def _layouts(subject: AbstractSubject, state: Seen[Any]) -> Layouts:
    return Layouts.unseen(state) if isinstance(state, Unseen) else observe_layouts(subject, state)


def _program(subject: AbstractSubject, member: str) -> tuple[Program, Seen[Any]]:
    """A member's program, and for the train step the abstract state that it returns."""

    def look() -> tuple[Program, Seen[Any]] | NotSupported:
        function = getattr(subject.strategy, member)
        if not hasattr(function, "lower"):
            return no_lower(member)
        lowered = stage(function.lower(subject.state, subject.batches[0]), "lowered")
        made = subject.compiler.compile(lowered, subject.strategy.mesh)
        after = subject.attempt(lambda: _returned(subject, lowered, made))
        program = read_program(subject, member, lowered, made.program)
        state_bytes = bytes_per_device([array for _, array in array_leaves(subject.state)])
        return with_schedule(subject, program, made.program.text, state_bytes), after

    seen = subject.attempt(look, member)
    return (Program.unseen(seen), seen) if isinstance(seen, Unseen) else seen


def _returned(subject: AbstractSubject, lowered: Any, made: Made) -> Any:
    """The state that a step returns: its leaves are the first of what the program returns."""
    before, tree = jax.tree.flatten(subject.state)
    shapes = jax.tree.leaves(lowered.out_info)[: len(before)]
    for number, (leaf, shape) in enumerate(zip(before, shapes, strict=True)):
        if leaf.shape != shape.shape or leaf.dtype != shape.dtype:
            raise TypeError(f"array {number} of the state: expected {leaf}, the step returns {shape}")
    return jax.tree.unflatten(tree, subject.placed(shapes, made.outputs, "train_step"))


def _training(subject: AbstractSubject, after: Seen[Any]) -> Training:
    where = layout_of(subject.state)
    return replace(
        Training.unseen(NOT_RUN),
        layouts=_layouts(subject, after),
        moved=subject.then(after, lambda state: moved(where, layout_of(state))),
    )
