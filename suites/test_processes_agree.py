"""A step that is right in one process is not yet right in several: each sees its own devices first."""

from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest

from meshproof.cases import has_member
from meshproof.measures.numerics import bitwise
from meshproof.observing.seen import NotSupported
from meshproof.observing.versions import admits

from .applicability import distributed
from .twins import PARTS, agree_steps

ONE_ORDER = ">=0.8"
"""The jaxlib that reduces among the devices of one of several processes in the order in which processes reduce. On
0.7.2 a mesh axis that two processes hold whole, and four do not, gave other bits over four."""


def chosen(case, cases):
    """A case that names numbers of processes; where none of its implementation does, the first, to say so."""
    named = [other for other in cases if distributed(other) and getattr(other.strategy, "processes", ())]
    return case in (named or [other for other in cases if distributed(other)][:1])


@pytest.mark.clause("MPR-1", applies=distributed, among=chosen)
def test_processes_agree(case, observation, over, judge, request):
    """Two and four processes MUST give the numbers of one process, bitwise where the reduction order is the same,
    within the derived bound otherwise. (Loss and, where the strategy shows them, optimizer state and parameters after
    each of k steps, gathered. Several processes reduce in one order, however many they are; one process, which reduces
    in memory, in another. Judged over the numbers of ``processes`` that the strategy names.)"""
    counts = getattr(case.strategy, "processes", ())
    if not counts:
        judge.see(NotSupported("the strategy names no numbers of `processes`, such as (2, 4), to be trained over"))
    truth, parts = request.getfixturevalue("truth"), [part for part in PARTS if has_member(case.strategy, part)]
    alone, seen = judge.see(observation.training.steps), {count: over(count) for count in counts}
    verdicts = []
    for count, steps in seen.items():
        agreed = agree_steps(alone, steps, truth, ("one process", f"{count} processes"), parts=parts)
        verdicts += [replace(verdict, part=f"{verdict.part} over {count} processes") for verdict in agreed]
    first, *others = seen
    notes = [f"judged without {part}, which the strategy lacks" for part in PARTS if part not in parts]
    if others and not admits(ONE_ORDER, version("jaxlib")):
        notes.append(f"jaxlib {version('jaxlib')} reduces in other orders over other numbers of processes")
        others = []
    judge.note("; ".join(notes))
    for count in others:
        names = f"{first} processes", f"{count} processes"
        for number, (one, other) in enumerate(zip(seen[first], seen[count], strict=True), start=1):
            losses = ({"loss": np.float64(step.loss)} for step in (one, other))
            verdicts.append(bitwise(*losses, f"loss of step {number}", names))
            for part in parts:
                of = getattr(one, part), getattr(other, part)
                verdicts.append(bitwise(*of, f"{part.replace('_', ' ')} after step {number}", names))
    judge.numbers(verdicts)
