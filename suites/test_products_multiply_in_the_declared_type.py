"""Who declares fewer digits than float32 has multiplies in them: else it pays for the digits, and nothing is faster."""

from collections import Counter

import pytest

from meshproof.contract import COMPUTE_TYPES, ELEMENT_TYPES

from .applicability import mixed

CAST = "a product of one operand that was cast and one that was not is float32's: cast parameters and inputs"
WHERE = {
    "bfloat16": CAST,
    "float16": CAST,
    "tensorfloat32": "set it where they are traced, jax.default_matmul_precision('tensorfloat32') around the loss: a "
    "setting of the process does not count, for every case is judged at float32's",
}
"""What is likely where products are wider than declared."""


@pytest.mark.clause("MIX-3", applies=mixed)
def test_products_multiply_in_the_declared_type(case, observation, judge):
    """At least a quarter of the products of each pass of a train step MUST multiply in the contract's
    ``compute_dtype``, or in what it is ``quantised`` to. (As they are written, in loops once for each turn, without the
    optimizer's. For ``tensorfloat32`` they ask, by the precision "high" or by an algorithm, also where the CPU, which
    has none, judges them: a setting that is lost in a backward pass, or in layers that were traced without it, costs
    time elsewhere and no digits.)"""
    declared = case.contract.compute_dtype
    narrow = {COMPUTE_TYPES[declared], *(ELEMENT_TYPES[dtype] for dtype in case.contract.quantised)}
    products = judge.see(judge.see(observation.programs.step).multiplied)
    named = {phase for _, phase, _ in products} - {"other"}
    problems = []
    for phase in sorted(named) or ["other"]:
        kinds = Counter()
        for product in products:
            kinds[product.kind] += product.times * (product.phase == phase)
        saw, of = sum(kinds[kind] for kind in narrow), kinds.total()
        if 4 * saw < of:
            problems.append(
                f"{phase} pass of the step: expected at least a quarter of its products to multiply in {declared}, "
                f"saw {saw} of {of}; {WHERE[declared]}"
            )
    judge.clear(problems)
