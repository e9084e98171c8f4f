"""The contract of what was seen of a trainer; what contradicts theory is asked, and theory is promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jax.sharding import PartitionSpec

from meshproof.adopting.adapter import Adapter
from meshproof.adopting.budgets import Budget, judged, trimmed, without
from meshproof.adopting.patterns import fewest
from meshproof.adopting.questions import Question, of_layouts, of_running
from meshproof.adopting.seeing import Layouts, Leaf, Sight
from meshproof.adopting.traffic import gathered
from meshproof.contract import Contract

BFLOAT16 = 0.25
"""The share of arrays in bfloat16, of those in float32, from which on a step is taken to compute in it."""


@dataclass(frozen=True)
class Adoption:
    """What is written: an adapter, the contract in whole, and the questions beside it."""

    adapter: Adapter
    contract: Contract
    questions: tuple[Question, ...]


def adopt(sight: Sight) -> Adoption:
    """The contract of a trainer that was seen."""
    layouts, questions = of_layouts(sight)
    budget = _budget(sight, layouts)
    questions = [*questions, *budget.questions, *of_running(sight)]
    dtype, about = _compute_dtype(sight)
    contract = Contract(
        parameters=_patterns(layouts.parameters),
        gradients=_patterns(layouts.gradients, sight.frozen),
        optimizer_state=_patterns(layouts.optimizer_state),
        batch=_patterns(layouts.batch),
        computed=budget.computed,
        forward=budget.forward,
        step=budget.step,
        device_dimension=sight.device_dimension,
        microbatches=budget.microbatches,
        mask=_mask(sight),
        compute_dtype=dtype,
        rematerialises=sight.step.rematerialises,
    )
    return Adoption(sight.adapter, contract, (*questions, *about))


def _budget(sight: Sight, layouts: Layouts) -> Budget:
    """Of both programs, where the step could be read."""
    if sight.step.unread:
        question = Question(
            "step", f"the compiled step cannot be read, so that nothing is promised: {sight.step.unread}"
        )
        return Budget(None, None, None, 1, (question,))
    if layouts.parameters is None:
        question = Question("step", "which tensors are parameters is not known, so that nothing is promised of traffic")
        return Budget(None, None, None, 1, (question,))
    in_use = {
        path: without(leaf, gathered(sight.step.moved, leaf, sight.mesh)) for path, leaf in layouts.parameters.items()
    }
    return judged(sight, layouts, in_use)


def _patterns(part: Mapping[str, Leaf] | None, avoid: frozenset[str] = frozenset()) -> dict[str, PartitionSpec] | None:
    if part is None:
        return None
    return fewest({path: PartitionSpec(*trimmed(leaf.spec)) for path, leaf in part.items()}, avoid)


def _mask(sight: Sight) -> str | None:
    """The field of truth values, one an example, of which some are false."""
    for field, value in sight.host_batch.items():
        if value.dtype == np.bool_ and value.ndim == 1 and not value.all():
            return field
    return None


def _compute_dtype(sight: Sight) -> tuple[str, tuple[Question, ...]]:
    """What the step computes in, as it was written; a narrower type that is rare is a question."""
    counts = {seen.name: seen for seen in sight.step.floats}
    wide = counts["f32"].count if "f32" in counts else 0
    narrow = [seen for seen in sight.step.floats if seen.bits < 32]
    if "bf16" in counts and counts["bf16"].count >= BFLOAT16 * wide and not [s for s in narrow if s.name != "bf16"]:
        return "bfloat16", ()
    return "float32", tuple(
        Question(
            "compute_dtype",
            f"{seen.name} in {seen.count:,} arrays, float32 in {wide:,}, first in {seen.first}: intended?",
        )
        for seen in narrow
    )
