"""Compute in fewer digits than float32 has errs by no more than these explain; what is stored stays float32."""

import numpy as np
import pytest

from meshproof.contract import Trajectory, leaves
from meshproof.measures import lengths
from meshproof.measures.causes import common_cause
from meshproof.measures.numerics import VACUOUS_IN, is_integer, judge_loss
from meshproof.measures.trajectories import cancelled, judge_trajectory
from meshproof.observing.seen import NotExercised, NotSupported

from .applicability import both, brings_truth, mixed, own_judge

LEAST = 2.0**-8
"""The least share of its bound that a run in bfloat16 uses. Float32 uses 2⁻¹⁶ of what bfloat16 does."""


@pytest.mark.clause("MIX-1", applies=mixed)
def test_mixed_precision_stays_within_its_bound(case, observation, truth, judge):
    """Compute in bf16, fp16 or TensorFloat-32 MUST stay within the derived bound of that, in the first gradients and in
    loss, optimizer state and parameters after every step. (The bound is at most half of the signal; that of a
    parameter may be more where those of its moments are not. Of a truth that is no such run itself gradients in 16 bits
    use more of it than float32 would, so the compute really has 16 bits.)"""
    judge.needs(case, "optimizer_state", "parameters")
    vacuous, first = VACUOUS_IN[case.contract.compute_dtype], (truth.value.steps[0].loss, truth.rounding.steps[0].loss)
    forward = judge_loss(judge.see(observation.start.loss), *first, "forward pass", vacuous)
    seen = Trajectory(judge.see(observation.gradients.values), judge.see(observation.training.steps))
    gradients, *rest = judge_trajectory(seen, truth, vacuous)
    judge.numbers([forward, gradients, *rest])
    bounds = {each.path: each.allowed / each.signal for each in gradients.records if each.signal}
    records = {each for verdict in rest for each in verdict.records}
    wide = {each.path for each in records if each.allowed > vacuous * each.signal > 0} - cancelled(truth).keys()
    told = [f"of {', '.join(sorted(wide))} gradients and moments tell more than parameters"] if wide else []
    if own_judge(case) and bounds:
        widest = max(bounds, key=lambda path: bounds[path])
        off = f"in {case.contract.compute_dtype} a gradient may be {bounds[widest]:.1%} off, as {widest}"
        if known := truth.lengths.get(lengths.GRADIENTS):
            off += f", and all of them {lengths.MULTIPLE * known[lengths.ALL]:.1%} too long or too short"
        told.insert(0, off)
    judge.note("; ".join(told))
    narrow = case.contract.compute_dtype
    if brings_truth(case) and narrow != "tensorfloat32" and gradients.margin < LEAST:
        expected = f"expected errors of {narrow} compute, at least {LEAST:.2g} of the bound"
        judge.fail([f"gradients of step 1: {expected}, saw at most {gradients.margin:.2g}: this was float32"])


@pytest.mark.clause("MIX-1", applies=both(mixed, own_judge))
def test_gradients_are_as_long_as_on_one_device(observation, truth, judge):
    """First gradients, and what the optimizer makes of them, MUST NOT all be too long or too short by one factor.
    (Where the truth is a run in 16 bits on one device. Over many elements rounding averages out, so that a factor is
    seen that the bound of each leaf hides.)"""
    if not truth.lengths:
        judge.see(NotExercised("the truth of this precision is not measured so"))
    gradients, steps = observation.gradients.values, judge.see(observation.training.steps)
    seen = lengths.trees(Trajectory(gradients if isinstance(gradients, dict) else {}, steps))
    value, problems = lengths.trees(truth.value), []
    judged = sorted(name for name in truth.lengths.keys() & seen.keys() if seen[name].keys() >= value[name].keys())
    for name in judged:
        deviations, factors = truth.lengths[name], lengths.along(seen[name], value[name])
        allowed = lengths.MULTIPLE * deviations[lengths.ALL]
        factor, off = lengths.agreed(factors, deviations), abs(factors[lengths.ALL] - 1)
        judge.margin(off if factor else min(off, allowed), allowed)  # no fault where leaves do not agree on it
        if factor:
            problems.append(
                f"{name}: expected the length of one device's within {allowed:.2%}, saw {factor:.4f} times that in "
                f"all leaves{common_cause(factor) or ': a mean over other rows, or of means of unequal parts'}"
            )
    if not judged:
        judge.see(NotSupported("neither gradients nor moments are shown"))
    judge.clear(problems)


@pytest.mark.clause("MIX-1", applies=mixed)
def test_masters_are_float32(case, observation, judge):
    """Parameters, optimizer state, gradients and loss MUST be float32 at every step. (By their dtype, and by digits
    that the compute dtype cannot hold, where steps change a leaf, or a gradient should, and do not empty it, as an
    accumulator. What the contract's ``dtypes`` declare is in that, and the gradients of such parameters in either;
    gradients have the digits in which the budget says that they move.)"""
    judge.needs(case, "optimizer_state", "parameters")
    steps = judge.see(observation.training.steps)
    kept = {"initial": judge.see(observation.start.parameters), "gradients": judge.see(observation.gradients.values)}
    kept |= {
        f"step {n}": {"parameters": s.parameters, "state": s.optimizer_state} for n, s in enumerate(steps, start=1)
    }
    judge.clear(
        f"{path}: expected float32, is {value.dtype}"
        for path, value in leaves(kept)
        if not is_integer(value) and value.dtype != np.float32 and str(value.dtype) != declared(case, path)
    )
    narrow = case.contract.compute_dtype
    losses = {"loss": np.array([judge.see(observation.start.loss), *(step.loss for step in steps)])}
    states = [dict(leaves(kept[f"step {n}"])) for n in range(1, len(steps) + 1)]
    before = {f"parameters/{path}": value for path, value in leaves(kept["initial"])}
    pulled = {f"parameters/{path}" for path in pulled_at(kept["gradients"], steps[-1].optimizer_state)}
    last = {path: value for path, value in states[-1].items() if path in pulled or trains(path, before, states)}
    moved = {line.dtype for line in case.contract.step or () if line.payload == "gradients"}
    reduced = case.contract.explicit and moved - {narrow}
    digits = losses | last | ({"gradients": kept["gradients"]} if reduced else {})
    judge.clear(
        f"{path}: expected digits that {narrow} cannot hold, saw none: it was rounded to {narrow}"
        + f"; of gradients that are meant to move so, the lines of the budget say dtype={narrow!r}"
        * path.startswith("gradients/")
        for path, value in leaves(digits)
        if value.dtype == np.float32 and held_in(value, narrow)
    )


def pulled_at(gradients, state):
    """The parameters that have a gradient, and moments if others have: what is frozen lacks one or the other."""
    moments = {path: [value for at, value in state.items() if f"/{at}".endswith(f"/{path}")] for path in gradients}
    have = any(moments.values())
    return [path for path, value in gradients.items() if value.any() and (not have or any(map(np.any, moments[path])))]


def trains(path, before, after):
    """Whether steps change a leaf, and never leave it empty."""
    seen = [state[path] for state in after]
    changed = any(not np.array_equal(value, seen[-1]) for value in [before.get(path, seen[0]), *seen])
    return changed and all(value.any() for value in seen)


def declared(case, path):
    """The dtype of a leaf of ``kept``, by its path there: a gradient's is that of its parameter."""
    where, _, rest = path.partition("/")
    inner, _, leaf = rest.partition("/")
    if where in ("initial", "gradients"):
        return case.contract.dtype("parameters", rest)
    return case.contract.dtype("parameters" if inner == "parameters" else "optimizer_state", leaf)


def held_in(value, dtype):
    """Whether every element is one of a dtype's numbers: of TensorFloat-32's if its last 13 bits are 0."""
    if dtype == "tensorfloat32":
        return not (np.ascontiguousarray(value).view(np.uint32) & 0x1FFF).any()
    with np.errstate(over="ignore"):
        return np.array_equal(value, value.astype(dtype).astype(value.dtype))
