"""Rematerialisation exists to save activation memory."""

import pytest

from .applicability import rematerialises
from .twins import needs_size, unrematerialised


@pytest.mark.clause("MEM-6", applies=rematerialises)
def test_rematerialisation_saves_memory(case, cases, observation, observe_also, judge):
    """Recomputing blocks MUST reduce the step's temporary memory by at least the activations that are then not kept
    (those of all blocks but one, or the part of them that the gradients do not outweigh)."""
    saved = judge.promised(case.contract.spared, "saving by recomputation, with this compiler at this size")
    twin = judge.counterpart(unrematerialised(case, cases), "form that keeps all activations")
    own, whole = (judge.see(seen.programs.step.memory).temporary for seen in (observation, observe_also(twin)))
    needs_size(case, whole, judge)
    judge.margin(saved, max(whole - own, 0))
    source = f"theory: {saved:,} bytes of activations less than {twin.id}, which takes {whole:,}"
    judge.at_most("temporary memory of the step", own, whole - saved, "bytes per device", source)
