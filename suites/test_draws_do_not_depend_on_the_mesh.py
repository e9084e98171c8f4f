"""Dropout masks belong to elements of an array, not to devices."""

import numpy as np
import pytest

from meshproof.measures.numerics import MULTIPLE, agree, norm
from meshproof.measures.trajectories import cancelled
from meshproof.observing.spread import KEYS, LENGTH, TOGETHER

from .advice import multiplied
from .applicability import both, brings_truth, distributed, draws, on_one_device, unless
from .twins import agree_steps

STRETCHED = 1.25
"""How many times as wide a mesh may spread what it draws. (Noise of two devices is √2 times as wide as of one.)"""

SAME = {"rtol": 1e-4, "atol": 1e-6}
"""Within which a loss or a gradient is one device's, of the same draws."""


def key(case):
    """Equal for the same training under several strategies."""
    strategy = case.strategy
    return strategy.framework, strategy.model, getattr(strategy, "variant", ""), case.target


@pytest.mark.clause("NUM-9", applies=both(distributed, draws, brings_truth))
def test_draws_do_not_depend_on_the_mesh(case, cases, observation, observe_also, truth, judge):
    """Random draws, such as dropout masks, MUST NOT depend on the mesh. (The first gradients and every step are
    compared with those of one device.)"""
    judge.needs(case, "optimizer_state", "parameters")
    alone = [other for other in cases if on_one_device(other) and key(other) == key(case)]
    twin = judge.counterpart(alone[0] if alone else None, "form on one device")
    other, names = observe_also(twin), (twin.id, case.id)
    gradients = judge.see(other.gradients.values), judge.see(observation.gradients.values)
    steps = judge.see(other.training.steps), judge.see(observation.training.steps)
    zero = cancelled(truth)
    judge.numbers([agree(*gradients, truth.rounding.gradients, "gradients of step 1", names, cancelled=zero)])
    judge.numbers(agree_steps(*steps, truth, names))


@pytest.mark.clause("NUM-9", applies=both(distributed, draws, unless(brings_truth)))
def test_draws_are_distributed_as_on_one_device(case, observation, judge):
    """The first loss, the first gradients and the first update MUST be those of one device, or, where the mesh draws
    other numbers from the same key, have the same mean, and spread no wider; where no loss depends on the draws, as on
    noise that is added to gradients, no less. (Over 32 keys each. A sum that should be a mean is seen; what is smaller
    than a mask's own noise is not. Updates are compared where gradients do not depend on the draws.)"""
    alone, steps = observation.single_device, judge.see(observation.training.steps)
    truth = judge.see(alone.truth).value
    seen = {"loss": np.asarray(steps[0].loss)} | steps[0].parameters
    if truth.gradients:
        gradients = judge.see(observation.gradients.values)
        seen |= {f"gradient of {path}": gradients[path] for path in truth.gradients if path in gradients}
    if all(np.allclose(run, first_step(truth)[what], **SAME) for what, run in seen.items()):
        return
    one, mesh = judge.see(alone.spread), judge.see(observation.draws.spread)
    problems: dict[str, str] = {}
    for what, expected in one.mean.items():
        if what not in mesh.mean or any(what.startswith(f"{told}, ") for told in problems):
            continue
        far = norm(mesh.mean[what] - expected)
        if what.endswith(LENGTH) and mesh.mean[what] < expected:
            far = max(shortest(expected, one.variance[what.removesuffix(LENGTH)][0], case.devices) - mesh.mean[what], 0)
        near = norm(one.deviation[what]) * np.sqrt(2 / KEYS)  # of the mesh's own a sum would widen it
        absent = is_absent(what, mesh, one)
        times = 0.0 if absent else stretched(mesh.variance[what], one.variance[what], norm(expected))
        if far > MULTIPLE * near and not any(np.allclose(*pair, **SAME) for pair in seldom(what, mesh, one)):
            times = norm(mesh.mean[what]) / (norm(expected) or 1)
            problems[what] = (
                f"its mean over {KEYS} keys is {far / near if near else np.inf:.3g} deviations from that on one "
                f"device, expected at most {MULTIPLE:g}; its length is {times:.3g} times that"
                f"{multiplied(times, case.mesh)}"
            )
        elif absent or times > STRETCHED or (times < 1 / STRETCHED and not one.deviation["loss"]):
            losses_draw = what.endswith(TOGETHER) or norm(one.deviation["loss"]) > 0
            problems[what] = (
                f"its deviation over {KEYS} keys is {times:.3g} times that on one device, expected "
                f"{1 / STRETCHED:.2g} to {STRETCHED:g}: {widened(times, losses_draw)}"
            )
    judge.clear(f"{what}: {problem}" for what, problem in problems.items())


def shortest(length, variance, devices):
    """A gradient's length where each device draws for itself what one device draws once, as negatives: noise that has
    so many times less variance adds up to less."""
    return np.sqrt(max(length**2 - variance * (1 - 1 / devices), 0))


def is_absent(what, mesh, one):
    """Nothing that the mesh draws reaches it, and on one device more often than seldom something does."""
    rounding = (SAME["atol"] + SAME["rtol"] * norm(one.mean[what])) ** 2
    (seen, _), (alone, _) = mesh.variance[what], one.variance[what]
    return seen <= rounding < alone / MULTIPLE and not any(
        np.allclose(*pair, **SAME) for pair in seldom(what, mesh, one)
    )


def stretched(mesh, one, length):
    """How many times as wide the draws spread on the mesh as on one device; 1 where their errors may explain the
    difference, or the rounding of what has this ``length``."""
    (seen, far), (alone, near) = mesh, one
    rounding = SAME["atol"] + SAME["rtol"] * length
    if abs(seen - alone) <= MULTIPLE * np.hypot(far, near) or max(seen, alone) <= rounding**2:
        return 1.0
    return np.sqrt(seen / alone) if alone else np.inf


def widened(times, losses_draw):
    """Why what is drawn may spread so: losses of shards that draw alike add up to more."""
    if not times:
        return "nothing that is drawn reaches it"
    if times > 1 and losses_draw:
        return "shards draw the same numbers; fold the device's index into the key of what each draws for its own shard"
    return (
        "what each device draws for itself adds up to another width; draw once, by a key that all devices have, for "
        "what is reduced already"
    )


def seldom(what, *spreads):
    """The medians, which are of no draws where most keys draw nothing that counts, and the means."""
    return zip(*((spread.median[what], spread.mean[what]) for spread in spreads), strict=True)


def first_step(trajectory):
    """The loss, the gradients and the parameters of the first step."""
    gradients = {f"gradient of {path}": value for path, value in trajectory.gradients.items()}
    return {"loss": np.asarray(trajectory.steps[0].loss)} | gradients | trajectory.steps[0].parameters


@pytest.mark.clause("NUM-9", applies=both(distributed, draws, unless(brings_truth)))
def test_every_shard_counts(observation, judge):
    """The first gradients MUST depend on the examples of every shard of the batch. (With the same keys, and the rows of
    the next shard in their place. Without gradients, what the first step leaves of moments and parameters.)"""
    judge.clear(
        f"step 1: expected other gradients where the rows of shard {shard} of the batch are replaced by those of the "
        f"next one, saw the same bits: what its device adds is lost; look at the mean over devices"
        for shard in judge.see(observation.draws.ignored)
    )
