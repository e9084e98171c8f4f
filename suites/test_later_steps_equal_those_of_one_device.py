"""What the first three steps do not show: a warm-up's end, a clip, an overflow, a mask that leaves one device empty."""

from math import inf

import numpy as np
import pytest

from meshproof.measures.numerics import pair, within
from meshproof.observing.probes import NOT_FINITE

from .applicability import both, brings_truth, distributed, unless
from .metrics import comparable


@pytest.mark.clause("NUM-13", applies=both(distributed, unless(brings_truth)))
def test_later_steps_equal_those_of_one_device(observation, truth, judge):
    """Steps MUST equal those of one device also where the first ones do not lead. (Later, with longer gradients, with
    an example that is not finite, with most rows masked and a device without any. With longer gradients a parameter
    is compared by the length of its update, and where moments are kept by the largest change in it. Judged where
    `single_device` is the truth. What is not finite on one device is not finite on the mesh, and nothing else is; a
    step in which devices find a maximum together may be finite, for XLA:CPU drops NaN there, and its metrics that are
    whole numbers others, as the counts of a histogram.)"""
    alone, seen = judge.see(observation.single_device.probes), judge.see(observation.probes)
    forgets = observation.programs.step.takes_extremes is True
    differing, same = {}, []
    for probe, reference in alone.items():
        forgotten = forgets and probe.endswith(NOT_FINITE)
        steps = zip(judge.see(seen[probe]).steps, reference.value.steps, reference.rounding.steps, strict=True)
        for number, step in enumerate(steps, start=1):
            verdicts = []
            for part, (run, one, allowed) in compared(step, forgotten):
                bound = within(allowed, "one device", vacuous=inf)
                verdict = pair(run, one, one, f"{part} of step {number}, {probe}", ("the run", "one device"), bound)
                judge.margin(verdict.margin, 1.0)
                verdicts.append(verdict)
            if failed := [verdict for verdict in verdicts if not verdict.passed]:
                differing[probe] = failed
                break
        else:
            same.append(probe)
    judge.clear(told(differing, same))


def told(differing, same):
    """What differs, run by run from where: the first of them whole, and of each other what differs first."""
    if not differing:
        return []
    whole, *rest = differing.values()
    begun = "; ".join(failed[0].part for failed in differing.values())
    others = f". As on one device: {'; '.join(same)}" if same else ""
    head = f"{len(differing)} of {len(differing) + len(same)} runs differ, and first in: {begun}{others}"
    return [head, *map(str, (*whole, *(failed[0] for failed in rest)))]


def compared(steps, forgotten):
    """The leaves of each part, settled, that have any. Where the mesh has ``forgotten`` what is not finite, whole
    numbers may be other ones."""
    for part, leaves in parts(*steps):
        kept = without_counts(*leaves) if forgotten and part == "metrics" else leaves
        if any(kept):
            yield part, settled(*kept, forgotten)


def parts(*steps):
    """The leaves of each part of a step, in each of several."""
    yield "loss", tuple({"loss": np.asarray(step.loss)} for step in steps)
    *metrics, _ = comparable(*(step.metrics for step in steps))
    others = ("auxiliary", "optimizer_state", "parameters")
    for part, held in ("metrics", metrics), *((part, [getattr(step, part) for step in steps]) for part in others):
        if any(held):
            yield part.replace("_", " "), held


def without_counts(run, one, rounding):
    """The leaves, but for those that have whole numbers alone in the run and on one device."""
    with np.errstate(invalid="ignore"):
        kept = [path for path in one if any(np.any(np.mod(side[path], 1)) for side in (run, one) if path in side)]
    return tuple({path: side[path] for path in kept if path in side} for side in (run, one, rounding))


def settled(run, one, rounding, forgets=False):
    """The leaves, with 0 for what is not finite on both sides, and for what rounding may carry beyond all numbers.

    Where the mesh ``forgets`` what is not finite, it need not be so there."""
    run, one, rounding = dict(run), dict(one), dict(rounding)
    for path in one.keys() & run.keys():
        if np.shape(run[path]) == np.shape(one[path]) and np.asarray(one[path]).dtype.kind not in "iub":
            seen, is_, by = (np.array(leaves[path], np.float64) for leaves in (run, one, rounding))
            finite, known = np.isfinite(is_), np.isfinite(by)
            idle = (finite & ~known) | (~finite & (forgets | ~np.isfinite(seen)))
            run[path], one[path], rounding[path] = (np.where(idle, 0.0, leaf) for leaf in (seen, is_, by))
    return run, one, rounding
