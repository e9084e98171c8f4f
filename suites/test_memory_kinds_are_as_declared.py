"""What is offloaded is where it was said to be: a state that stays on the device fits until the model grows."""

import pytest

from meshproof.cases import has_member
from meshproof.observing.seen import NotSupported

from .moments import moments

PARTS = ("parameters", "optimizer_state", "auxiliary")


@pytest.mark.clause("SHD-11", applies=lambda case: bool(case.contract.memory))
def test_memory_kinds_are_as_declared(case, observation, judge):
    """Every leaf of the state MUST be in the memory kind that the contract's ``memory`` declares for it, after init,
    before training and after training. (Where it declares none: in the device's own.)"""
    parts = [part for part in PARTS if has_member(case.strategy, part)]
    for layouts, when in moments(observation, trained=True):
        own, *others = judge.see(layouts.memories)
        if lacking := sorted(set(case.contract.memory.values()) - {own, *others}):
            judge.see(NotSupported(f"the device has no {', '.join(lacking)} memory, but {', '.join([own, *others])}"))
        leaves = [(part, leaf) for part in parts for leaf in judge.see(getattr(layouts, part))]
        unmatched = case.contract.unmatched("memory", [f"{part}/{leaf.path}" for part, leaf in leaves])
        judge.clear(f"expected a leaf for each pattern of memory, saw none that {at!r} matches" for at in unmatched)
        judge.clear(
            f"{part.replace('_', ' ')} {leaf.path}, {when}: expected {declared} memory, is in {leaf.memory or own}"
            for part, leaf in leaves
            for declared in [case.contract.memory_kind(part, leaf.path) or own]
            if declared != (leaf.memory or own)
        )
