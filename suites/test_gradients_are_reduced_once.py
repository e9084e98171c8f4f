"""Gradients are reduced once: not left out, not twice, not over another axis."""

from math import prod

import pytest

from meshproof.measures.traffic import SCALARS, metrics_allowed, norms_allowed

from .advice import advised
from .applicability import axes_of, data_parallel, reduces, takes_examples_together
from .derived import REDUCTIONS, lanes_of, theory
from .hierarchical import NUMBER


@pytest.mark.clause("COM-2", applies=reduces)
def test_gradients_are_reduced_once(case, observation, judge):
    """Every gradient byte MUST be reduced exactly once per step (or per microbatch) over every axis that splits the
    batch but not the parameter in use. (In each of a step's `evaluations`. An axis splits the batch by examples or by
    their tokens. Over such an axis only metrics are reduced besides: scalars, norms of each parameter, or of each unit
    of one that is split there, and what the forward pass reduces, as each expert's share of the batch; and statistics
    of the batch where the auxiliary state has them: in the forward pass at most twice their bytes, for a variance has a
    mean of its own, and in the backward pass no more than in the forward pass, or twice in the step alone, or once to
    be gathered; or where the optimizer keeps them beside moments, as preconditioners, each once, or once to be
    gathered. Where a compiler writes the collectives, a vector, parameters of up to 64 bytes, or a kernel of another's
    shape, may have a gradient that is made of sums, or of another's that is reduced; and vectors and small parameters
    may be reduced in each use, if the budget says so. Where
    gradients are scattered over other axes and gathered again, only their shards are reduced.)"""
    budget = judge.budget("step")
    axes = {line.axes for line in budget if line.payload == "gradients"}
    seen = judge.see(observation.programs.step.collectives)
    reductions = [t for t in lanes_of(case, seen, budget) if t.lane[0] in REDUCTIONS and t.lane[1] in axes]
    judge.clear(advised("step", (traffic for traffic in reductions if not traffic.exact), observation))
    useful = {axis for part in ("batch", "parameters", "computed") for axis in axes_of(case, part)}
    judge.clear(stray(case, budget, useful))
    for line in budget:
        if line.payload == "metrics":
            hold_metrics(case, observation, judge, line)
    hold_statistics(case, observation, judge)
    judge.clear(theory(case, observation, judge).reductions())


def hold_metrics(case, observation, judge, line):
    """What is budgeted as metrics is no second reduction of gradients: scalars, or what the forward pass reduces."""
    contract, leaves = case.contract, judge.see(observation.start.layouts.parameters)
    norms = norms_allowed(((leaf.shape, leaf.declared or ()) for leaf in leaves), line.axes)
    alike = [other for other in contract.forward or () if (other.payload, other.axes) == (line.payload, line.axes)]
    forward, passes = sum(other.bytes for other in alike), (2 + contract.rematerialises) * contract.evaluations
    allowed = metrics_allowed(forward, passes, contract.microbatches, norms)
    source = (
        f"scalars: {SCALARS} bytes per microbatch, or {passes} times the {forward} of metrics in the budget of the "
        f"forward pass, for what is taken of a batch has a gradient; and {norms} of norms, of each parameter and of "
        f"units of those that are split there{beside_moments(observation, judge)}; budget: {line}"
    )
    judge.at_most("metrics in the budget", line.bytes, allowed, "bytes", source)


def beside_moments(observation, judge):
    """Where what an optimizer keeps beside moments belongs, if it shows any. (COM-2 needs no optimizer state.)"""
    if not isinstance(observation.start.layouts.optimizer_state, tuple):
        return ""
    kept = [leaf.path for leaf in running(observation, judge, "optimizer_state") if leaf.shape]
    return f"; what an optimizer keeps beside moments, as {min(kept)}, is `statistics`" if kept else ""


def hold_statistics(case, observation, judge):
    """What is budgeted as statistics is no second reduction of gradients: the state keeps as much beside parameters."""
    for lane in dict.fromkeys(
        (line.operation, line.axes) for line in case.contract.step if line.payload == "statistics"
    ):
        forward, step = (
            sum(line.bytes for line in budget if (line.operation, line.axes, line.payload) == (*lane, "statistics"))
            for budget in (judge.budget("forward"), case.contract.step)
        )
        bounds = gathered(observation, judge) if lane[0] == "all-gather" else reduced(case, observation, judge, forward)
        for what, moved, (allowed, source) in zip(("forward pass", "step"), (forward, step), bounds, strict=True):
            told = f"theory: {source}; budget: statistics over {'×'.join(lane[1])}"
            judge.at_most(f"statistics in the budget of the {what}", moved, allowed, "bytes", told)


def gathered(observation, judge):
    """The bytes of statistics that a forward pass and a step may gather, each with its source."""
    kept = sum(leaf.itemsize * prod(leaf.shape) for leaf in judge.see(observation.start.layouts.auxiliary))
    beside = sum(leaf.itemsize * prod(leaf.shape) for leaf in running(observation, judge, "optimizer_state"))
    source = "all of the auxiliary state, once"
    ranked = NUMBER * examples(observation) if kept else 0
    made = f"or {NUMBER} bytes of each example, as of its loss, of which a quantile may be made"
    return [
        (kept, source),
        (max(kept, ranked) + beside, f"{source}, {made}; and what the optimizer keeps beside moments"),
    ]


def examples(observation):
    """How many a batch has: the elements of its field's split dimensions."""
    fields = observation.start.batch.fields
    if not isinstance(fields, tuple):
        return 0
    split = (zip(field.shape, field.declared or (), strict=False) for field in fields)
    return max((prod(size for size, axes in field if axes) for field in split), default=0)


def reduced(case, observation, judge, forward):
    """The bytes of statistics that a forward pass and a step may reduce, each with its source; ``forward`` are those
    that the forward pass does."""
    passes = (2 + case.contract.rematerialises) * case.contract.evaluations
    twice = 2 * sum(leaf.bytes_per_device for leaf in running(observation, judge, "auxiliary"))
    kept = sum(leaf.bytes_per_device for leaf in running(observation, judge, "optimizer_state"))
    floats = "what the auxiliary state keeps that is no copy of a parameter, no key and no counter, each of it twice"
    again = (
        f"those of the forward pass in {passes} passes, or else {floats}; and what the optimizer keeps beside moments"
    )
    return [(twice, floats), ((passes * forward or twice) * case.contract.microbatches + kept, again)]


def running(observation, judge, part):
    """The leaves of a part of the state that can be statistics: no average of a parameter is one."""
    layouts = observation.start.layouts
    copied = [(f"/{leaf.path}", leaf.shape) for leaf in judge.see(layouts.parameters)]
    for leaf in judge.see(getattr(layouts, part)):
        is_copy = any(f"/{leaf.path}".endswith(path) and leaf.shape == shape for path, shape in copied)
        counts = leaf.dtype.startswith("int") and leaf.shape  # a histogram; a counter of steps is no statistic
        if ("float" in leaf.dtype or counts) and not is_copy:
            yield leaf


def stray(case, budget, useful):
    """Lines that no such budget may have: gradients between devices that do the same, or more than data parallelism."""
    open_parts = None in (case.contract.batch, case.contract.parameters)
    for line in budget:
        idle = set(line.axes) - useful
        if line.payload == "gradients" and idle and not open_parts:
            over = "×".join(sorted(idle))
            yield f"expected no gradients over {over}, which splits neither examples nor parameters; budget: {line}"
        needed = line.payload in ("gradients", "metrics", "statistics")
        together = (line.operation, line.axes, line.payload) in takes_examples_together(case)
        if data_parallel(case) and not (needed or together):
            yield f"expected no {line.payload} to move, as every device has the whole model; budget: {line}"
