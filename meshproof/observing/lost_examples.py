"""Which examples count otherwise than on one device, where the first step does not do what it does there.

A part of a field is replaced by that of another batch, on the mesh and on one device, and what that changes in the
first step's loss, and in what the step leaves, is compared: for two other batches, as one vector, for one number may be
alike by chance. Examples that a mesh drops change nothing there; those of a device that has another weight, as by a
mean of means, change so many times as much. A mask changes what all others count, and stays as it is. Asked only of a
step that is off: a healthy one costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves, leaves, nest
from meshproof.measures.numerics import judge, judge_loss, norm
from meshproof.measures.trajectories import cancelled
from meshproof.observing.alone import on_one_device
from meshproof.observing.members import canonical, state_and_metrics
from meshproof.observing.probes import place, step_of
from meshproof.observing.rearranged import rearranged
from meshproof.observing.seen import NotExercised, NotSupported, Seen, Unseen
from meshproof.observing.single_device_truth import LARGE, SingleDevice
from meshproof.observing.subject import Subject
from meshproof.observing.training import Training

COMPARED = 3
"""Of how many batches the losses are compared with those of rearranged ones."""

MOST = 8
"""The largest number of parts in which a dimension is looked at."""

ALIKE, OTHER = 1e-3, 1e-2
"""How far off what a part changes may be, of what it changes on one device; and from when on it is something else."""

SEEN = 1e-4
"""What a part must change on one device, of the whole, to be compared."""

NAMED = 3
"""How many leaves a sentence names."""

LOSS, LEFT = "the loss of step 1", "what step 1 leaves"
AS_IT_SHOULD, NOT_AT_ALL, OTHERWISE = "as on one device", "not at all", "otherwise than on one device"
UNCLEAR = "nearly as on one device"

Left = dict[str, np.ndarray]


@dataclass(frozen=True)
class Parts:
    """Equal parts of a dimension of a field, as ``called``, and which of its indices each has."""

    field: str
    dimension: int
    called: str
    marks: tuple[np.ndarray, ...]


def observe_lost_examples(subject: Subject, training: Training, alone: SingleDevice) -> Seen[tuple[str, ...]]:
    """A sentence for each way in which parts of the first batch count otherwise than on one device."""
    truth, steps = alone.truth, training.steps
    if isinstance(truth, Unseen) or isinstance(steps, Unseen) or alone.draws is not False:
        return NotSupported("it is asked of trainers that draw nothing, and have their own run on one device for truth")
    if jax.process_count() > 1:
        return NotExercised("over several processes this is not looked at")
    if sum(map(np.size, steps[0].parameters.values())) > LARGE:
        return NotExercised("of so many parameters hundreds of steps take too long")
    saw, is_, by, zero = steps[0], truth.value.steps[0], truth.rounding.steps[0], cancelled(truth)
    verdicts = (
        judge_loss(saw.loss, is_.loss, by.loss),
        judge(saw.optimizer_state, is_.optimizer_state, by.optimizer_state, cancelled=zero),
        judge(saw.parameters, is_.parameters, by.parameters, cancelled=zero),
    )
    if not any(verdict.failures for verdict in verdicts):
        return ()
    return subject.attempt(lambda: tuple(told(subject)), "load")


def told(subject: Subject) -> Iterator[str]:
    """The sentences on each dimension that the mesh splits: by the loss, or where it does not tell by what is left."""
    trainers = subject.strategy, on_one_device(subject.strategy, "float32")
    start = subject.host(subject.tree("parameters", subject.fresh()))
    first, *others = (dict(leaves(batch)) for batch in subject.host_batches)
    usual = [stepped(trainer, start, first) for trainer in trainers]
    placed = dict(leaves(canonical(subject.batches[0], "shard_batch")))
    alike: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    asked = {
        path: value
        for path, value in first.items()
        if path != subject.case.contract.mask and np.asarray(value).dtype != bool
    }
    for parts in divided(asked, placed):
        value = first[parts.field]
        values = [other[parts.field] for other in others if np.shape(other[parts.field]) == np.shape(value)]
        changed = []
        for marks in parts.marks if values else ():
            batches = [first | {parts.field: replaced(value, each, parts.dimension, marks)} for each in values]
            changed.append([moved(*each, start, batches) for each in zip(trainers, usual, strict=True)])
        for what, said in clearest(usual[1], changed):
            where = "" if said == NOT_AT_ALL else f"of {parts.called} in dimension {parts.dimension} "
            whats, fields = alike.setdefault((where, said), ([], []))
            whats.append(what)
            fields.append(parts.field)
    for (where, said), (whats, fields) in alike.items():
        what = several([*dict.fromkeys(whats)])
        yield f"in {what}, {where}of {' and '.join(dict.fromkeys(fields))}, count: {said}"
    held = dict(leaves(subject.tree("parameters", subject.fresh())))
    batches = [first, *(batch for batch in others if shapes(batch) == shapes(first))][:COMPARED]
    of_fields, of_parameters = (
        {path: shard_counts(np.shape(value), on_mesh[path]) for path, value in on_host.items()}
        for on_host, on_mesh in ((asked, placed), (start, held))
    )
    if arrangement := rearranged(*trainers, start, batches, of_fields, of_parameters):
        yield f"the losses are those of one device with {arrangement}"


def clearest(usual: Left, changed: list[list[Left]]) -> list[tuple[str, str]]:
    """How the parts count: by the loss or by all that is left, or else by each leaf of that which tells it."""
    said = {
        what: counted([weight(mesh[what], one[what], SEEN * norm(whole)) for mesh, one in changed])
        for what, whole in usual.items()
    }
    told = [(what, words) for what, words in said.items() if words]
    clear = [each for each in told if OTHERWISE not in each[1]]
    if told and told[0][0] in (LOSS, LEFT) and (told[0] in clear or not clear):
        return told[:1]
    return [each for each in clear if each[0] != LEFT]


def several(whats: list[str]) -> str:
    """The first of these, and how many more there are."""
    rest = f" and of {len(whats) - NAMED} more" if len(whats) > NAMED else ""
    return f"{whats[0]}{''.join(f' and {what.removeprefix(LEFT)[1:]}' for what in whats[1:NAMED])}{rest}"


def shapes(batch: Leaves) -> dict[str, tuple[int, ...]]:
    """Of each field."""
    return {path: np.shape(value) for path, value in batch.items()}


def moved(trainer: Any, usual: Left, start: Leaves, batches: list[Leaves]) -> Left:
    """What these batches change of what a first step usually leaves, one behind the other."""
    left = [stepped(trainer, start, batch) for batch in batches]
    return {what: np.concatenate([each[what] - before for each in left]) for what, before in usual.items()}


def stepped(trainer: Any, start: Leaves, batch: Leaves) -> Left:
    """The loss of a first step, and what of the state it leaves."""
    state = trainer.load(nest(start))
    step = step_of(trainer, *state_and_metrics(trainer.train_step(state, place(trainer, nest(batch)))))
    left = step.optimizer_state or step.parameters
    kept = {f"{LEFT} of {path}": np.ravel(value).astype(float) for path, value in left.items()}
    return {LOSS: np.array([step.loss]), LEFT: np.concatenate([*kept.values()])} | kept


def divided(batch: Leaves, placed: dict[str, Any]) -> Iterator[Parts]:
    """Every field's split dimensions, in what a device has or several have, and in equal parts of what each has."""
    for field, value in batch.items():
        for dimension, (size, shards) in enumerate(
            zip(np.shape(value), shard_counts(np.shape(value), placed[field]), strict=True)
        ):
            if shards == 1:
                continue
            own, index = size // shards, np.arange(size)
            few, pieces = (next(n for n in range(MOST, 0, -1) if of % n == 0) for of in (shards, own))
            yield Parts(
                field, dimension, f"the {few} equal parts", tuple(index * few // size == at for at in range(few))
            )
            if pieces > 1:
                marks = tuple(index % own * pieces // own == at for at in range(pieces))
                yield Parts(field, dimension, f"the {pieces} equal parts of each of {shards} shards", marks)


def shard_counts(shape: tuple[int, ...], placed: Any) -> tuple[int, ...]:
    """Into how many equal shards each dimension is split; what has a dimension of devices, in its first one.

    What is on the host is in one piece.
    """
    whole = placed.shape
    if not hasattr(placed, "sharding"):
        counts = [1] * len(shape)
    elif len(whole) > len(shape):
        counts = [whole[0], *[1] * (len(shape) - 1)]
    else:
        counts = [size // own for size, own in zip(shape, placed.sharding.shard_shape(whole), strict=True)]
    return tuple(count if size % count == 0 else 1 for size, count in zip(shape, counts, strict=True))


def replaced(value: Any, other: Any, dimension: int, marks: np.ndarray) -> np.ndarray:
    """One field with what is marked of another."""
    wide = marks.reshape([-1 if at == dimension else 1 for at in range(np.ndim(value))])
    return np.where(wide, other, value)


def weight(mesh: np.ndarray, one: np.ndarray, least: float) -> str:
    """How a part counts by what it changes; empty where it changes too little on one device to tell."""
    length, off = norm(one), norm(mesh - one)
    if length <= least:
        return ""
    if off <= ALIKE * length:
        return AS_IT_SHOULD
    if off < OTHER * length:
        return UNCLEAR
    if norm(mesh) <= ALIKE * length:
        return NOT_AT_ALL
    times = float(np.vdot(one, mesh)) / length**2
    return f"{times:.3g} times" if norm(mesh - times * one) <= ALIKE * length else OTHERWISE


def counted(weights: list[str]) -> str:
    """In words, where parts count differently, or not at all; empty where that tells nothing."""
    kinds = {kind for kind in weights if kind}
    if kinds == {NOT_AT_ALL}:
        return NOT_AT_ALL
    if len(kinds) < 2 or UNCLEAR in kinds or (OTHERWISE in kinds and not kinds & {AS_IT_SHOULD, NOT_AT_ALL}):
        return ""
    by_kind = {kind: [at for at, each in enumerate(weights) if each == kind] for kind in weights if kind}
    return ", ".join(f"{listed(at)} {kind}" for kind, at in sorted(by_kind.items(), key=lambda item: item[1]))


def listed(numbers: list[int]) -> str:
    """Numbers in words, those that follow each other as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " and ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
