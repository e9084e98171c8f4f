"""What looks wrong of a trainer: asked, with what is promised instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from meshproof.adopting.adapter import spec_of
from meshproof.adopting.seeing import Layouts, Leaf, Sight
from meshproof.adopting.traffic import Seen
from meshproof.hlo.constraints import spelled_type
from meshproof.measures.trajectories import owner
from meshproof.measures.verdicts import Verdict

SHOWN = 3
"""How many leaves a question names."""


@dataclass(frozen=True)
class Question:
    """``about`` is the field of the contract, or the member, that it stands beside."""

    about: str
    text: str


def named(paths: Sequence[str]) -> str:
    """These leaves, in few words."""
    shown, more = list(paths[:SHOWN]), len(paths) - SHOWN
    return (
        f"{', '.join(shown)} and {more} more"
        if more > 0
        else " and ".join([", ".join(shown[:-1]), shown[-1]])
        if len(shown) > 1
        else "".join(shown)
    )


def spelled(times: Fraction) -> str:
    """How often, in words."""
    often = {1: "once", 2: "twice"}.get(times.numerator, f"{times.numerator} times")
    return often if times.denominator == 1 else f"{often} for every {times.denominator} of them"


def of_layouts(sight: Sight) -> tuple[Layouts, list[Question]]:
    """The layouts to promise, and questions on those that were seen."""
    questions = list[Question]()
    parameters, moments = sight.parameters, dict(sight.optimizer_state) if sight.optimizer_state else None
    large = {axis: size for axis, size in sight.mesh.items() if size > 1}
    if moments and parameters:
        moments = _beside_parameters(parameters, moments, questions)
        questions += _partly(moments, parameters, "optimizer_state", large)
    if parameters:
        questions += _partly(parameters, {}, "parameters", large)
    for part, leaves in (("parameters", parameters), ("optimizer_state", moments)):
        if odd := [path for path, leaf in (leaves or {}).items() if leaf.odd]:
            placed = (leaves or {})[odd[0]].odd
            questions.append(
                Question(part, f"{named(odd)}: placed as {placed}, which no PartitionSpec says: intended?")
            )
    gradients = sight.gradients or (None if parameters is None else _by_step(sight, parameters, moments or {}))
    if gradients and sight.frozen:
        gradients = {path: leaf for path, leaf in gradients.items() if path not in sight.frozen}
        if not any(owner(path, sight.start) for path in moments or ()):
            still = f"{named(sorted(sight.frozen))}: three steps leave them as they were, as if they were not trained"
            questions.append(Question("gradients", f"{still}: intended?"))
    inside = _split_inside(sight)
    batch = inside or _batch(sight, questions)
    whole = {field: replace(used, spec=()) for field, used in inside.items()}
    return Layouts(parameters, gradients, moments, batch, whole or batch), questions


def _beside_parameters(
    parameters: dict[str, Leaf], moments: dict[str, Leaf], questions: list[Question]
) -> dict[str, Leaf]:
    """The moments, each split at least as its parameter is."""
    whole: dict[str, list[str]] = {}
    for name, moment in moments.items():
        for path, leaf in parameters.items():
            alike = name == path or name.endswith(f"/{path}")
            if alike and moment.shape == leaf.shape and not leaf.axes <= moment.axes:
                whole.setdefault(", ".join(sorted(leaf.axes - moment.axes)), []).append(name)
                moments = moments | {name: replace(moment, spec=leaf.spec)}
    for axes, names in whole.items():
        told = f"{named(names)}: replicated over {axes}, though the parameter is split"
        questions.append(Question("optimizer_state", f"{told}: intended?"))
    return moments


def _partly(
    leaves: dict[str, Leaf], parameters: dict[str, Leaf], part: str, mesh: dict[str, int]
) -> Iterable[Question]:
    """Leaves that are whole over an axis that splits others which are no larger, and that it could split."""
    for axis, size in mesh.items():
        split = [leaf for path, leaf in leaves.items() if axis in leaf.axes and not _of(path, parameters, axis)]
        least = min((prod(leaf.shape) for leaf in split), default=0)
        whole = [
            path
            for path, leaf in leaves.items()
            if split
            and axis not in leaf.axes
            and (part == "batch" or (prod(leaf.shape) >= least and len(leaf.shape) > 1))
            if any(length % size == 0 for length in leaf.shape)
        ]
        if whole:
            others = "other fields" if part == "batch" else "smaller leaves"
            yield Question(part, f"{named(whole)}: replicated over {axis}, which splits {others}: intended?")


def _of(path: str, parameters: dict[str, Leaf], axis: str) -> bool:
    """Whether a moment is split because its parameter is."""
    return any(f"/{path}".endswith(f"/{name}") and axis in leaf.axes for name, leaf in parameters.items())


def _by_step(sight: Sight, parameters: dict[str, Leaf], moments: dict[str, Leaf]) -> dict[str, Leaf]:
    """The gradients' layout where the trainer does not show them: that of the moments if the step scatters, else whole
    over every axis over which no reduction is scattered."""
    scattered = {axis for entry, _ in sight.step.moved if entry.operation == "reduce-scatter" for axis in entry.axes}
    found = {}
    for path, leaf in parameters.items():
        own = [m for name, m in moments.items() if f"/{name}".endswith(f"/{path}") and m.shape == leaf.shape]
        widest = max(own, key=lambda moment: len(moment.axes), default=leaf)
        found[path] = widest if widest.axes - leaf.axes <= scattered else leaf
    return found


def _batch(sight: Sight, questions: list[Question]) -> dict[str, Leaf] | None:
    """The batch's layout; where nothing at all is split, that of a batch whose examples are."""
    large = [axis for axis, size in sight.mesh.items() if size > 1]
    batch = sight.batch
    parts = (sight.parameters, sight.optimizer_state, batch)
    if batch is None or not large or any(leaf.axes for part in parts for leaf in (part or {}).values()):
        questions += _partly(batch or {}, {}, "batch", dict.fromkeys(large, 1))
        return batch
    told = f"{named(list(batch))}: every device holds all examples and all of the model: all compute the same"
    questions.append(Question("batch", f"{told}: intended?"))
    return {field: replace(leaf, spec=(large[0],) if leaf.shape else ()) for field, leaf in batch.items()}


def _split_inside(sight: Sight) -> dict[str, Leaf]:
    """The fields as the step uses them, where a batch enters whole and the step splits its examples by a constraint.

    Empty elsewhere. A field is known by its type, if nothing in the state has that.
    """
    entering = sight.batch or {
        path: Leaf(value.shape, value.itemsize, (), dtype=str(value.dtype)) for path, value in sight.host_batch.items()
    }
    if any(leaf.axes for leaf in entering.values()):
        return {}
    state = (sight.parameters, sight.optimizer_state, sight.auxiliary)
    taken = {spelled_type(leaf.shape, leaf.dtype) for part in state for leaf in (part or {}).values()}
    split = {kind: spec_of(axes) for kind, axes in sight.step.constraints if axes[0] and kind not in taken}
    used = {
        path: replace(leaf, spec=split.get(spelled_type(leaf.shape, leaf.dtype), ())) for path, leaf in entering.items()
    }
    return used if any(leaf.axes for leaf in used.values()) else {}


def of_running(sight: Sight) -> Iterable[Question]:
    """Questions on how the step runs."""
    step, training = sight.step, sight.training
    if step.aliased is not None and step.aliased < sight.state_bytes - sight.single_bytes:
        told = f"donates {step.aliased:,} of the state's {sight.state_bytes:,} bytes, and so holds it twice"
        yield Question("train_step", f"the step {told}: intended?")
    for transfer in step.host_transfers[:SHOWN]:
        yield Question("train_step", f"the step talks to the host, {transfer}: intended?")
    if isinstance(training.moved, tuple) and training.moved:
        yield Question("train_step", f"the step leaves {training.moved[0]}: intended?")
    compiled = training.compilations
    if isinstance(compiled, tuple) and any("backend_compile" in events for events in compiled[1:]):
        yield Question("train_step", "the second step compiles again: intended?")
    for verdict, what in ((training.replicas, "copies on several devices differ"), (training.finite, "not finite")):
        if isinstance(verdict, Verdict) and not verdict.passed:
            bad = [record.path for record in verdict.records if record.failure]
            if bad:
                yield Question("train_step", f"after three steps, {named(bad)}: {what}: intended?")
    if isinstance(training.implicit_transfers, tuple) and training.implicit_transfers:
        told = f"each step moves arrays between the host and devices implicitly, {training.implicit_transfers[0]}"
        yield Question("train_step", f"{told}: intended?")
    if sight.promotions:
        yield Question("train_step", f"a dtype is promoted implicitly, {sight.promotions[0]}: intended?")
    if sight.displaced:
        told = f"{len(sight.displaced)} shards hold other examples than theirs, first {sight.displaced[0]}"
        yield Question("batch", f"{told}: intended?")
    if sight.held_whole:
        yield Question("init", f"while it runs a device holds all of {named(sight.held_whole)}: intended?")


def shown_whole(gradients: Mapping[str, Leaf], seen: Iterable[Seen]) -> Iterator[Question]:
    """Ask where the step scatters gradients over axes that split none of those that are shown: COM-4 takes these for
    what the step has."""
    for axes in sorted({each.lane[1] for each in seen if each.lane[::2] == ("reduce-scatter", "gradients")}):
        if gradients and not any(leaf.axes & set(axes) for leaf in gradients.values()):
            over = " and ".join(axes)
            told = f"shown whole over {over}, where the step reduce-scatters them; show the shards that the step has"
            yield Question("gradients", f"{named([*gradients])}: {told}: intended?")
