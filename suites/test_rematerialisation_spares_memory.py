"""What rematerialisation is for."""

import pytest

from .applicability import rematerialises
from .twins import unrematerialised


@pytest.mark.clause("MEM-6", applies=rematerialises)
def test_rematerialisation_spares_memory(case, cases, observation, observe_also, judge):
    """Where blocks are computed anew, the step MUST take as many bytes less of temporary memory as the activations
    that it spares, at least: those of all blocks but one, or what of them the gradients do not outweigh."""
    spared = judge.promised(case.contract.spared, "memory spared by computing anew, by this compiler at this size")
    twin = judge.promised(unrematerialised(case, cases), "form that keeps all activations to compare with")
    own, whole = (judge.see(judge.see(seen.step).memory).temporary for seen in (observation, observe_also(twin)))
    judge.margin(spared, max(whole - own, 0))
    source = f"theory: {spared:,} bytes of activations less than {twin.id}, which takes {whole:,}"
    judge.at_most("temporary memory of the step", own, whole - spared, "bytes per device", source)
