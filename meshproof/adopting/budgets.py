"""The budgets of both programs, held to what layouts imply: every gradient reduced once, every shard gathered once.

These are the rules of COM-2 and COM-4 by tensors instead of bytes, so that a question can name the leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from jax.sharding import PartitionSpec

from meshproof.adopting.batch_statistics import in_forward, in_step, running
from meshproof.adopting.mixed_examples import mixed
from meshproof.adopting.patterns import fewest
from meshproof.adopting.questions import Question, named, shown_whole, spelled
from meshproof.adopting.raveled import weighed
from meshproof.adopting.reductions import reductions
from meshproof.adopting.seeing import Layouts, Leaf, Sight
from meshproof.adopting.tables import tables
from meshproof.adopting.theory import Theory, gathered_over, scalars
from meshproof.adopting.traffic import (
    Lane,
    Seen,
    is_metric,
    lines,
    shard_shapes,
    sorted_out,
    vectors,
)
from meshproof.adopting.training import trained_alike
from meshproof.adopting.vectors_in_part import used_in_part
from meshproof.contract import Communication, Payload, spec_axes
from meshproof.measures.traffic import between_examples, metrics_allowed, norms_allowed


@dataclass(frozen=True)
class Budget:
    """What is promised of what moves, and what is asked. Each gradient is reduced as often as there are
    ``repetitions``. ``has_no_owner``: more of gradients is reduced than the parameters have."""

    forward: tuple[Communication, ...] | None
    step: tuple[Communication, ...] | None
    computed: dict[str, PartitionSpec] | None
    repetitions: int
    questions: tuple[Question, ...]
    has_no_owner: bool = False


def judged(
    sight: Sight,
    layouts: Layouts,
    in_use: Mapping[str, Leaf],
    said: Mapping[str, Leaf],
    parts: int,
    evaluations: int,
    half: str | None,
) -> Budget:
    """The budgets; ``in_use`` is how parameters are computed with, by what the step gathers, ``said`` by what the
    trainer says, ``parts`` and ``evaluations`` are what its products show, ``half`` the 16 bits it computes in."""
    assert layouts.parameters is not None
    batch_axes = split_axes(layouts.batch, sight.mesh)
    exchanged = {
        axis
        for entry, _ in sight.step.moved
        if entry.operation in ("all-to-all", "collective-permute") and len(entry.axes) == 1
        for axis in entry.axes
    }
    tokens = {axis for leaf in (layouts.batch or {}).values() for axis in spec_axes(leaf.spec[1:])}
    exchanged |= tokens
    questions, in_use = list[Question](), {**in_use, **said}
    if layouts.batch is not None:
        others = {path: leaf for path, leaf in layouts.parameters.items() if path not in said}
        in_use |= dict(_used(others, in_use, batch_axes, exchanged, questions))
    of, gradients = weighed(layouts, in_use, sight.frozen, prod(sight.mesh.values()))
    of = used_in_part(of, sight.step.moved, sight.mesh, batch_axes)
    theory = Theory(sight.mesh, of, batch_axes, gradients, sight.frozen)
    scattered = {axis for leaf in gradients.values() for axis in leaf.axes}
    moved, of_tables, read_in_part = tables(sight.step.moved, of, sight.mesh, batch_axes, tokens)
    seen, unsaid = sorted_out(moved, of, sight.mesh, batch_axes, scattered)
    seen += of_tables
    if unsaid:
        return Budget(None, None, None, parts, tuple(Question("step", f"{each}: intended?") for each in unsaid))
    sizes, kept = (running(part, layouts.parameters) for part in (sight.auxiliary, layouts.optimizer_state))
    forward = None
    if sight.forward is not None and not sight.forward.unread:
        forward, _ = sorted_out(sight.forward.moved, of, sight.mesh, batch_axes, scattered)
        forward = in_forward(forward, sizes, batch_axes)
        forward = [replace(each, lane=(*each.lane[:2], _in_forward(each, batch_axes))) for each in forward]
    seen = scalars(theory, vectors(seen, forward or ()), forward)
    seen = in_step(theory, seen, forward, sizes, 2 + sight.step.rematerialises, kept)
    repetitions = 1
    if layouts.batch is not None:
        steps = sight.training.steps
        alike = trained_alike(sight.start, steps) if isinstance(steps, tuple) and sight.start else {}
        repetitions, seen = reductions(theory, seen, forward, parts, evaluations, read_in_part, alike, questions)
        _gathers(theory, seen, sight.step.rematerialises, questions)
        questions += shown_whole(gradients, seen)
        split = split_axes(layouts.parameters, sight.mesh) | split_axes(layouts.optimizer_state, sight.mesh)
        if forward and not split and not tokens:
            forward, seen = mixed(forward, seen, batch_axes)
        stray = _stray(split, tokens, theory, seen, forward or (), questions)
        seen = [each for each in seen if each.lane not in stray]
        forward = None if forward is None else [each for each in forward if each.lane not in stray]
    metrics, first = (sum(each.bytes for each in of if each.lane[2] == "metrics") for of in (seen, forward or ()))
    norms = norms_allowed(((leaf.shape, leaf.spec) for leaf in layouts.parameters.values()), batch_axes)
    if metrics > metrics_allowed(first, 2 + sight.step.rematerialises, repetitions, norms):
        questions.append(Question("step", f"{metrics:,} bytes of metrics are reduced in a step: intended?"))
    reduced = sum(each.bytes for each in seen if each.lane[2] == "gradients")
    owed = repetitions * sum(each.bytes for weight in of for each in theory.in_theory(weight))
    return Budget(
        forward=None if forward is None else lines(forward, half),
        step=lines(seen, half),
        computed=_computed(layouts.parameters, in_use, said, batch_axes, seen),
        repetitions=repetitions,
        questions=tuple(questions),
        has_no_owner=reduced > owed,
    )


def _in_forward(seen: Seen, batch_axes: set[str]) -> Payload:
    """What it is in a forward pass, which has no gradients."""
    if seen.lane[2] != "gradients":
        return seen.lane[2]
    return "metrics" if is_metric(seen.shape, set(seen.lane[1]), batch_axes) else "activations"


def split_axes(part: Mapping[str, Leaf] | None, mesh: Mapping[str, int]) -> set[str]:
    """The mesh axes of more than one device that split a leaf of a part."""
    return {axis for leaf in (part or {}).values() for axis in leaf.axes if mesh[axis] > 1}


def _used(
    parameters: Mapping[str, Leaf],
    in_use: Mapping[str, Leaf],
    batch_axes: set[str],
    exchanged: set[str],
    questions: list[Question],
) -> Iterator[tuple[str, Leaf]]:
    """How parameters are computed with: as they are at rest over other axes, whole over those of the batch.

    Over a batch axis a parameter stays split where its tokens come to it, as those of an expert do.
    """
    by_storage: dict[str, list[str]] = {}
    brought: dict[str, list[str]] = {}
    for path, leaf in parameters.items():
        kept, whole = in_use[path].axes, leaf.axes - in_use[path].axes
        for axis in kept & batch_axes - exchanged:
            by_storage.setdefault(axis, []).append(path)
        for axis in whole - batch_axes:
            brought.setdefault(axis, []).append(path)
        yield path, leaf.without((leaf.axes & batch_axes) - (kept & exchanged))
    for axis, paths in by_storage.items():
        told = f"{named(paths)}: split over {axis} at rest and not gathered before use; activations move instead"
        told += " (as tokens to experts: then give the trainer `computed`, how they are computed with)"
        questions.append(Question("step", f"{told}: intended?"))
    for axis, paths in brought.items():
        told = f"{named(paths)}: gathered over {axis}, which splits no batch; activations should move instead"
        questions.append(Question("step", f"{told}: intended?"))


def _gathers(theory: Theory, seen: list[Seen], rematerialises: bool, questions: list[Question]) -> None:
    """Ask where a shard is not gathered once, or twice with recomputation; what must move is added."""
    told: dict[str, list[str]] = {}
    for _, of in theory.classes():
        for axis in sorted(gathered_over(of[0])):
            count, expected = theory.gathers(of, axis, seen)
            if count == expected or (rematerialises and expected <= count <= 2 * expected):
                continue
            how = f"gathered {spelled(Fraction(count, expected))}" if count else "not gathered"
            told.setdefault(f"{how} over {axis}", []).extend(weight.path for weight in of)
            lane = next((e.lane for e in seen if e.lane[2] == "parameters" and axis in e.lane[1]), None)
            lane = lane or ("all-gather", theory.ordered(gathered_over(of[0])), "parameters")
            shapes = {shape for weight in of for shape in shard_shapes(weight, {axis}, theory.mesh)}
            seen[:] = [e for e in seen if e.lane[2] != "parameters" or e.shape not in shapes or axis not in e.lane[1]]
            for weight in theory.weights:
                if shapes & shard_shapes(weight, {axis}, theory.mesh) and axis in gathered_over(weight):
                    size = weight.itemsize * prod(weight.local(weight.in_use, theory.mesh))
                    seen.append(Seen(lane, next(iter(shapes)), size, 1))
    questions += [Question("step", f"shards of {named(paths)}: {how}: intended?") for how, paths in told.items()]


def _stray(
    split: set[str],
    tokens: set[str],
    theory: Theory,
    step: Iterable[Seen],
    forward: Iterable[Seen],
    questions: list[Question],
) -> set[Lane]:
    """The lanes that layouts do not need which split the state, and tokens, over these axes: they are asked for, and
    not promised."""
    brought = {axis for weight in theory.weights for axis in gathered_over(weight)}
    found, together = set[Lane](), between_examples(lines(forward), lines(step))
    for lane in sorted({each.lane for each in (*step, *forward)}):
        operation, axes, what = lane
        over = set(axes)
        if lane in together:
            if operation != "reduce-scatter" and over <= theory.batch_axes - tokens:
                how = "mixes or brings, as mixup" if what == "examples" else "compares, as a contrastive loss"
                told = f"{operation} of {what} over {' and '.join(axes)}, which a loss {how} does"
                questions.append(Question("step", f"{told}: intended?"))
            continue
        if what in ("activations", "parameters") and not split and not tokens:
            why = "though every device has the whole model"
        elif what == "gradients" and over - theory.batch_axes - split:
            why = "which splits neither examples nor parameters"
        elif what == "parameters" and not over & brought:
            why = "though what it splits is split in use"
        elif what == "activations" and operation == "all-reduce" and over <= theory.batch_axes and not tokens:
            why = "which splits the batch: parameters should be gathered instead"
        else:
            continue
        found.add(lane)
        told = f"{operation} of {what} over {'×'.join(axes)}, {why}"
        if what == "activations" and lane not in {each.lane for each in forward}:
            told += "; what the auxiliary state alone keeps of it, as a queue does, is `statistics`"
        questions.append(Question("step", f"{told}: intended?"))
    return found


def _computed(
    parameters: Mapping[str, Leaf],
    in_use: Mapping[str, Leaf],
    said: Mapping[str, Leaf],
    batch_axes: set[str],
    seen: list[Seen],
) -> dict[str, PartitionSpec] | None:
    """How parameters are computed with, where that does not go without saying: tokens move over a batch axis, or one
    that is ``said`` to be gathered is so over another axis."""
    exchanges = any(each.lane[2] == "activations" and batch_axes & set(each.lane[1]) for each in seen)
    if not exchanges and not any(parameters[path].axes - leaf.axes - batch_axes for path, leaf in said.items()):
        return None
    return fewest({path: PartitionSpec(*in_use[path].spec) for path in parameters})
