"""What is to be float32 is not computed, or kept, in fewer digits without a word."""

import jax.numpy as jnp
import numpy as np
import pytest

from meshproof.cases import has_member
from meshproof.contract import COMPUTE_TYPES, EIGHT_BITS, ELEMENT_TYPES

SINGLE = 32
"""Bits of float32."""

TF32 = 19
"""Bits of TensorFloat-32, in which products may multiply float32."""

NAMES = ELEMENT_TYPES | COMPUTE_TYPES
"""As programs name them."""

PARTS = ("parameters", "optimizer_state", "auxiliary")


@pytest.mark.clause("MIX-2")
def test_nothing_is_narrower_than_declared(case, observation, judge):
    """The train step and the forward pass MUST NOT compute in a floating-point type narrower than the contract's
    ``compute_dtype``, or in another one of its width. (As they are written: a compiler that widens what is narrow hides
    it on one target alone. What the contract's ``dtypes`` or a line of its budget say is kept or moves in less, or a
    batch has, may be converted and updated in it, but for products and sums.)"""
    declared, kept = case.contract.compute_dtype, set(case.contract.dtypes.values())
    kept |= {line.dtype for line in (*(case.contract.step or ()), *(case.contract.forward or ())) if line.dtype}
    if isinstance(fields := observation.start.batch.fields, tuple):
        kept |= {field.dtype for field in fields}
    rounded = {NAMES[dtype] for dtype in case.contract.quantised}
    others = set(NAMES.values()) - {NAMES[declared]}
    judge.clear(
        f"{name}: expected no type but {declared} and wider ones, saw {seen.name} in {seen.count:,} arrays, first in "
        f"{seen.first}; compute and keep it in {declared}, or declare {where(seen.name)} where it is meant"
        for name, program in programs(case, observation)
        for seen in judge.see(program.floats)
        if (seen.bits < bits(declared) or (seen.bits == bits(declared) and seen.name in others))
        and (seen.summed or seen.name not in {NAMES.get(dtype) for dtype in kept})
        and seen.name not in rounded
    )


def programs(case, observation):
    """Those of every strategy, by their names."""
    yield "step", observation.programs.step
    if has_member(case.strategy, "loss"):
        yield "forward pass", observation.programs.forward


def where(element):
    """The field of a contract that may say such a type."""
    return "quantised" if element in [ELEMENT_TYPES[dtype] for dtype in EIGHT_BITS] else "compute_dtype"


def quantises(case):
    """The contract says that values are rounded to 8 bits."""
    return bool(case.contract.quantised)


@pytest.mark.clause("MIX-2", applies=quantises)
def test_what_is_quantised_is_multiplied(case, observation, judge):
    """The train step MUST round values to every type of the contract's ``quantised``, and neither it nor the forward
    pass adds up in one."""
    seen = {name: {of.name: of for of in judge.see(program.floats)} for name, program in programs(case, observation)}
    problems = []
    for dtype in case.contract.quantised:
        if NAMES[dtype] not in seen["step"]:
            problems.append(f"step: expected values rounded to {dtype}, saw none; leave it out where it is not meant")
        problems += [
            f"{name}: expected no sum in {dtype}, saw {sums}; add up in {case.contract.compute_dtype} or float32"
            for name, types in seen.items()
            if NAMES[dtype] in types and (sums := types[NAMES[dtype]].summed - types[NAMES[dtype]].multiplied)
        ]
    judge.clear(problems)


@pytest.mark.clause("MIX-2")
def test_state_is_as_wide_as_declared(case, observation, judge):
    """Every floating-point leaf of the state MUST be kept in the dtype that the contract's ``dtypes`` declare for it,
    and in float32 where they declare none. (Wider than float32 is no fault.)"""
    layouts = observation.start.layouts
    members = [part for part in PARTS if has_member(case.strategy, part)]
    leaves = [(part, leaf) for part in members for leaf in judge.see(getattr(layouts, part))]
    unmatched = case.contract.unmatched("dtypes", [f"{part}/{leaf.path}" for part, leaf in leaves])
    judge.clear(
        f"expected a leaf for each pattern of dtypes, saw none that {pattern!r} matches" for pattern in unmatched
    )
    declared = [
        (leaf, f"{part.replace('_', ' ')} {leaf.path}", case.contract.dtype(part, leaf.path)) for part, leaf in leaves
    ]
    judge.clear(
        f"{name}: expected {dtype}, is {leaf.dtype}; keep it in {dtype}, or declare it in dtypes where it is meant"
        for leaf, name, dtype in declared
        if "float" in leaf.dtype and leaf.dtype != dtype and not bits(leaf.dtype) > bits(dtype) == SINGLE
    )


def narrow_parameters(case):
    """The contract has parameters that are kept in less than float32."""
    of_parameters = (dtype for at, dtype in case.contract.dtypes.items() if at.startswith(("parameters", "*")))
    return any("float" in dtype and bits(dtype) < SINGLE for dtype in of_parameters)


@pytest.mark.clause("MIX-2", applies=narrow_parameters)
def test_narrow_parameters_are_rounded_masters(case, observation, judge):
    """Every parameter that is kept in less than float32, and that training changes, MUST be the rounding of a float32
    leaf of the optimizer or auxiliary state after each step."""
    start, steps = judge.see(observation.start.parameters), judge.see(observation.training.steps)
    problems = []
    for path, first in start.items():
        if bits(first.dtype) >= SINGLE or all(np.array_equal(first, step.parameters[path]) for step in steps):
            continue
        for number, step in enumerate(steps, start=1):
            seen, kept = step.parameters[path], (*step.optimizer_state.items(), *step.auxiliary.items())
            masters = [value for _, value in kept if (value.dtype, value.shape) == (np.float32, seen.shape)]
            if not any(np.array_equal(master.astype(seen.dtype), seen) for master in masters):
                problems.append(
                    f"{path} after step {number}: expected the rounding to {seen.dtype} of a float32 master, saw none "
                    f"among {len(masters)} leaves of its shape; update the master and cast that"
                )
    judge.clear(problems)


def bits(dtype):
    """Of a floating-point dtype, or of TensorFloat-32, by its name."""
    return TF32 if dtype == "tensorfloat32" else jnp.finfo(dtype).bits
