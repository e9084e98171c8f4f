"""Rematerialisation exists to save activation memory."""

import pytest

from meshproof.observing.seen import NotSupported

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


@pytest.mark.clause("MEM-6", applies=rematerialises)
def test_the_backward_pass_recomputes(observation, judge):
    """A step whose contract promises recomputation MUST compute again in its backward pass what it computed forward.
    (By JAX's name for it in the compiled program; where it has none, by more than three times the matrix products of
    the forward pass: two of each are the backward pass's own.)"""
    step = observation.programs.step
    if judge.see(step.recomputes):
        return
    products, once = judge.see(step.products), judge.see(observation.programs.forward.products)
    if not products or not once:
        judge.see(NotSupported("the compiled program does not tell how many matrix products it runs"))
    if products <= 3 * once:
        judge.fail(
            [
                f"expected a backward pass that recomputes, saw none in the program: it runs {products:,} matrix "
                f"products where the forward pass runs {once:,}, and all activations are kept; put jax.checkpoint "
                f"around each layer, or leave rematerialises out of the contract"
            ]
        )
