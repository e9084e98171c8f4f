"""The contract of what was seen of a trainer; what contradicts theory is asked, and theory is promised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import log, prod

import numpy as np
from jax.sharding import PartitionSpec

from meshproof.adopting.adapter import Adapter, AdoptError, trimmed
from meshproof.adopting.budgets import Budget, judged
from meshproof.adopting.patterns import fewest
from meshproof.adopting.questions import Question, named, of_layouts, of_running
from meshproof.adopting.seeing import Layouts, Leaf, Read, Sight
from meshproof.adopting.stacks import gathered_vectors, stacked
from meshproof.adopting.traffic import Weight, gathered, weights
from meshproof.contract import COMPUTE_TYPES, EIGHT_BITS, ELEMENT_TYPES, HALVES, Contract, spec_axes

LEAST, MOST = 2, 3
"""Products of a step for each of its forward pass: the gradient of the input, but for the first, and of the weights.
One more where all are computed again."""

MASKS = ("mask", "valid", "count", "weight", "keep", "pad")
"""What a mask is called."""

WIDE = 32
"""Bits of float32."""

WIDE_TYPES = {"float32", "int32"}
"""What a contract need not say."""


@dataclass(frozen=True)
class Adoption:
    """What is written: an adapter, the contract in whole, and the questions beside it."""

    adapter: Adapter
    contract: Contract
    questions: tuple[Question, ...]


def adopt(sight: Sight) -> Adoption:
    """The contract of a trainer that was seen."""
    layouts, questions = of_layouts(sight)
    parts, evaluations = repetitions(sight)
    rounded = _quantised(sight)
    dtype, about = _compute_dtype(sight, rounded)
    budget = _budget(sight, layouts, parts, evaluations, dtype if dtype in HALVES else None)
    questions = [*questions, *budget.questions, *of_running(sight)]
    dtypes, kept = kept_in(sight)
    contract = Contract(
        parameters=_patterns(layouts.parameters),
        gradients=_patterns(layouts.gradients, sight.frozen),
        optimizer_state=_patterns(layouts.optimizer_state),
        auxiliary=_patterns(sight.auxiliary),
        batch=_patterns(layouts.placed),
        batch_in_step=_patterns(layouts.batch) if layouts.batch != layouts.placed else None,
        computed=budget.computed,
        forward=budget.forward,
        step=budget.step,
        device_dimension=sight.device_dimension,
        microbatches=parts if evaluations > 1 else max(budget.repetitions, parts),
        evaluations=evaluations if budget.repetitions > 1 else 1,
        mask=_mask(sight),
        compute_dtype=dtype,
        quantised=rounded if dtype in HALVES else (),
        dtypes=dtypes,
        rematerialises=sight.step.rematerialises and "schedule" not in sight.adapter.members,
    )
    return Adoption(sight.adapter, contract, (*questions, *about, *kept, *masks(sight)))


def _budget(sight: Sight, layouts: Layouts, parts: int, evaluations: int, half: str | None) -> Budget:
    """Of both programs, where the step could be read; its products are those of so many microbatches, in each of so
    many evaluations of the batch. What is looked up may stay where it lies: if fewer questions are left then, and no
    gradient without a parameter, it does.
    """
    if sight.step.unread:
        question = Question(
            "step", f"the compiled step cannot be read, so that nothing is promised: {sight.step.unread}"
        )
        return Budget(None, None, None, 1, (question,))
    if layouts.parameters is None:
        question = Question("step", "which tensors are parameters is not known, so that nothing is promised of traffic")
        return Budget(None, None, None, 1, (question,))
    of = weights(layouts.parameters, layouts.optimizer_state, {})
    vectors = gathered_vectors(sight.step.moved, of, sight.mesh)
    sight = _in_stacks(sight, of)
    in_use = {
        path: leaf.without(gathered(sight.step.moved, leaf, sight.mesh)) for path, leaf in layouts.parameters.items()
    }
    said = {path: in_use[path] for path in vectors} | dict(_said(layouts.parameters, sight.adapter.computed))
    budget = judged(sight, layouts, in_use, said, parts, evaluations, half)
    tables = {path: leaf for path in sight.tables if path not in said if (leaf := layouts.parameters[path]).axes}
    if not budget.questions or not tables:
        return budget
    in_place = judged(sight, layouts, in_use, said | tables, parts, evaluations, half)
    fewer = len(in_place.questions) < len(budget.questions)
    return in_place if fewer and not in_place.has_no_owner else budget


def _said(parameters: Mapping[str, Leaf], computed: Mapping[str, PartitionSpec]) -> Iterator[tuple[str, Leaf]]:
    """The parameters of which the trainer says how they are computed with, as they are then. Raises `AdoptError` where
    a pattern matches none."""
    contract = Contract(computed=computed)
    if unmatched := contract.unmatched("computed", parameters):
        raise AdoptError(f"computed: {unmatched} match no parameter, expected patterns of {sorted(parameters)}")
    for path, leaf in parameters.items():
        with suppress(LookupError):
            yield path, replace(leaf, spec=trimmed(tuple(contract.spec("computed", path))))


def _in_stacks(sight: Sight, of: list[Weight]) -> Sight:
    """The same, with layers that move in a scan as the stacks that they are of."""

    def joined(read: Read) -> Read:
        return replace(read, moved=stacked(read.moved, of, sight.mesh))

    return replace(sight, step=joined(sight.step), forward=sight.forward and joined(sight.forward))


def _patterns(part: Mapping[str, Leaf] | None, avoid: frozenset[str] = frozenset()) -> dict[str, PartitionSpec] | None:
    if part is None:
        return None
    return fewest({path: PartitionSpec(*trimmed(leaf.spec)) for path, leaf in part.items()}, avoid)


def _mask(sight: Sight) -> str | None:
    """The field of truth values, for examples or their tokens, of which some are false."""
    for field, value in sight.host_batch.items():
        if value.dtype == np.bool_ and value.ndim and not value.all():
            return field
    return None


def masks(sight: Sight) -> tuple[Question, ...]:
    """Questions on a mask that has the name of something else, and on fields of 0 and 1 that are called masks."""
    mask = _mask(sight)
    unnamed = [mask] if mask and not any(word in mask.lower() for word in MASKS) else []
    asked = [Question("mask", f"{field}: taken for the mask, as some of it is false: intended?") for field in unnamed]
    return *asked, *(
        Question("batch", f"{field}: called a mask, and of numbers: if it is one, say mask={field!r}: intended?")
        for field, value in sight.host_batch.items()
        if "mask" in field and value.dtype != np.bool_ and set(np.unique(value)) == {0, 1}
    )


def repetitions(sight: Sight) -> tuple[int, int]:
    """How many parts of a batch a step runs one after the other, and how often all of it, by the products that it runs
    and what they multiply: parts multiply all together as much as the batch whole.

    1 where that is not plain.
    """
    forward, step = sight.forward, sight.step
    if forward is None or not forward.runs or not step.runs:
        return 1, 1
    shards = [leaf for leaf in (sight.batch or {}).values() if leaf.shape]
    if sight.device_dimension:
        rows = [leaf.shape[1] for leaf in shards]
    else:
        rows = [leaf.shape[0] // prod(sight.mesh[axis] for axis in spec_axes(leaf.spec[:1])) for leaf in shards]

    def fits(ratio: float, times: int) -> bool:
        """Whether a step does so much more than a forward pass, where it does so much as often."""
        again = step.rematerialises
        return (LEAST + again) * times < ratio <= (MOST + again) * times

    count = step.runs / forward.runs
    parts = [times for times in range(1, min(rows, default=1) + 1) if all(size % times == 0 for size in rows)]
    if not forward.flops or not step.flops:
        found = [times for times in parts if times > 1 and fits(count, times)]
        return (found[0] if len(found) == 1 else 1), 1
    work = step.flops / forward.flops
    whole = [times for times in range(1, step.runs + 1) if fits(work, times)]
    passes = whole[0] if len(whole) == 1 else 1
    most = (MOST + step.rematerialises) * passes
    found = [times for times in parts if LEAST * passes * times < count <= most * times]
    return min(found, key=lambda times: abs(log(count / work / times)), default=1), passes


def _quantised(sight: Sight) -> tuple[str, ...]:
    """The types of 8 bits that the step rounds to and does not add up in."""
    seen = {of.name: of.summed - of.multiplied for of in sight.step.floats}
    return tuple(dtype for dtype in EIGHT_BITS if seen.get(ELEMENT_TYPES[dtype]) == 0)


def _compute_dtype(sight: Sight, rounded: tuple[str, ...]) -> tuple[str, tuple[Question, ...]]:
    """What the step's products multiply, and a question on whatever is narrower than float32.

    What is multiplied in 8 bits is, like all else, computed in the type of 16 bits that most arrays have.
    """
    halves = {of.name: of.count for of in sight.step.floats if of.name in map(ELEMENT_TYPES.get, HALVES)}
    eight, half = {ELEMENT_TYPES[dtype] for dtype in rounded}, max(halves, key=lambda name: halves[name], default="")
    kinds = [half if kind in eight else kind for kind in sight.step.products]
    narrower = [each for each in COMPUTE_TYPES.items() if each[0] != "float32"]
    narrow, mixed = next((each for each in narrower if kinds.count(each[1]) * 2 > len(kinds)), ("float32", ""))
    eighths = " or 8 bits" if eight else ""
    told = [f"{kinds.count(mixed)} of {len(kinds)} products multiply {narrow}{eighths}"] if mixed else []
    questions = [Question("compute_dtype", f"{each}: intended?") for each in told]
    wide = sum(seen.count for seen in sight.step.floats if seen.bits == WIDE)
    for seen in sight.step.floats:
        if seen.bits < WIDE and seen.name != mixed:
            about = "quantised" if seen.name in eight and mixed else "compute_dtype"
            arrays = f"{seen.name} in {seen.count:,} arrays, float32 in {wide:,}, first in {seen.first}"
            questions.append(Question(about, f"{arrays}: intended?"))
    return narrow, tuple(questions)


def kept_in(sight: Sight) -> tuple[dict[str, str], tuple[Question, ...]]:
    """What leaves are kept in that are no float32, by part and path, and a question on each such type."""
    parts = ("parameters", "gradients", "optimizer_state", "auxiliary")
    kept = {f"{part}/{path}": leaf.dtype for part in parts for path, leaf in (getattr(sight, part) or {}).items()}
    narrow = {path: dtype for path, dtype in kept.items() if dtype in ELEMENT_TYPES and dtype not in WIDE_TYPES}
    told = (
        f"{named([path for path, other in narrow.items() if other == dtype])}: kept in {dtype}: intended?"
        for dtype in dict.fromkeys(narrow.values())
    )
    patterns = fewest(narrow, frozenset(kept.keys() - narrow.keys()))
    return patterns, tuple(Question("dtypes", each) for each in told)
