"""Dropout masks belong to elements of an array, not to devices, nor to all steps, nor to all layers."""

from operator import attrgetter

import numpy as np
import pytest

from meshproof.contract import leaves, spec_axes
from meshproof.measures.numerics import MULTIPLE, agree, norm
from meshproof.measures.trajectories import cancelled
from meshproof.observing.draws import alike
from meshproof.observing.key_streams import again, alike_in_rows, drawn_twice, left_behind, moves_on
from meshproof.observing.spread import KEYS, LENGTH, TOGETHER

from .advice import multiplied
from .applicability import both, brings_truth, distributed, draws, on_one_device, splits_layers, unless
from .twins import agree_steps

STRETCHED = 1.25
"""How many times as wide a mesh may spread what it draws. (Noise of two devices is √2 times as wide as of one.)"""

SPLIT = "In random_split"
"""How JAX's check begins to tell of a key that was used before it is split."""

APART = "split the key, or fold in the number of the layer or the microbatch"
"""What parts the draws of two places."""

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


@pytest.mark.clause("NUM-9", applies=both(distributed, draws))
def test_draws_differ_between_devices(case, observation, judge):
    """Devices that hold different examples MUST draw different numbers. (If the loss stays where examples change their
    device, and changes where they change places on it, each device draws the same mask; if it stays where those of two
    devices change places, these two do. Where all of the mesh splits examples, no draw for each of a device's rows has
    the keys of the other devices, if another has not.)"""
    usual, places, devices = (judge.see(getattr(observation.draws, name)) for name in ("usual", "reversed", "shard"))
    if alike(usual, devices) and not alike(usual, places):
        seen = f"expected another one than {usual:.9g} where each example moves to the next device, saw {devices:.9g}"
        places = f"where examples change places on their device it is {places:.9g}"
        advice = "fold the device's index into the key, or draw for the global batch"
        judge.fail([f"first loss: {seen}; {places}. Each device draws the same numbers: {advice}"])
    pairs = observation.draws.pairs
    if isinstance(pairs, tuple) and pairs:
        told = ", ".join(f"{one} and {other}" for one, other in pairs)
        judge.fail(
            [
                f"first loss: expected another one than {usual:.9g} where the examples of two devices change places, "
                f"saw it stay for the shards {told}. These draw the same numbers: fold each device's own index into "
                f"the key"
            ]
        )

    keys, weights = observation.draws.keys, {leaf.shape for leaf in judge.see(observation.start.layouts.parameters)}
    if isinstance(keys, tuple) and (shared := alike_in_rows(keys[0], rows_of_a_device(case), weights)):
        told_of = f"saw the {shared.shape} numbers of a device's rows by the same keys on all, and others by their own"
        judge.fail([f"step 1: expected keys of each device's own, {told_of}: fold the device's index into every key"])


def rows_of_a_device(case):
    """How many examples a device has; 0 where the mesh splits more than examples, or nobody says."""
    specs = (case.contract.batch or {}).values()
    split = {axis for spec in specs for axis in spec_axes(spec[:1])}
    rows = len(next(iter(leaves(next(iter(case.strategy.batches(1))))))[1])
    return rows // case.devices if split >= {axis for axis, size in case.mesh.items() if size > 1} else 0


@pytest.mark.clause("NUM-9", applies=both(distributed, draws, unless(brings_truth)))
def test_every_shard_counts(observation, judge):
    """The first gradients MUST depend on the examples of every shard of the batch. (With the same keys, and the rows of
    the next shard in their place. Without gradients, what the first step leaves of moments and parameters.)"""
    judge.clear(
        f"step 1: expected other gradients where the rows of shard {shard} of the batch are replaced by those of the "
        f"next one, saw the same bits: what its device adds is lost; look at the mean over devices"
        for shard in judge.see(observation.draws.ignored)
    )


@pytest.mark.clause("NUM-9", applies=draws)
def test_draws_differ_between_steps(observation, judge):
    """Steps MUST draw different numbers. (In the arrays of the first step, with counters and keys of the second; and
    with all counters moved on by 50 and more.)"""
    names = ("usual", "other", "reversed", "later")
    usual, other, places, later = (judge.see(getattr(observation.draws, name)) for name in names)
    keys, late_keys = (getattr(observation.draws, name) for name in ("keys", "late_keys"))
    if alike(usual, other) and alike(usual, places):
        first, *others = judge.see(keys)
        if all(step.keys() == first.keys() for step in others):
            made = f"saw {told(min(first, key=attrgetter('place', 'device')))} by the same keys in all steps"
            cure = (
                "keep a key or a counter in the state, and move it on; of what is meant to be the same in all steps, as"
            )
            judge.fail([f"each step: expected new keys, {made}; {cure} random features, leave `draws` out"])
        return
    if alike(usual, later) and not differ(keys):
        seen = f"expected another loss than {usual:.9g} with the counters and keys of the second step, saw {later:.9g}"
        advice = "keep a key or a counter in the state, and move it on in every step"
        judge.fail([f"first batch: {seen}. Each step draws the same numbers: {advice}"])
    late = observation.draws.late
    if isinstance(late, tuple) and all(alike(late[0], each) for each in late) and not alike(usual, late[0]):
        if differ(late_keys):
            return
        seen = f"expected other losses than {late[0]:.9g} in the {len(late) - 1} steps after it, saw none"
        judge.fail([f"first batch, counters moved on by 50: {seen}. From some step on each draws the same numbers"])


def differ(keys):
    """Whether steps are known to draw by other keys: a loss that stays has nothing that is dropped."""
    return isinstance(keys, tuple) and moves_on(keys)


@pytest.mark.clause("NUM-9", applies=draws)
def test_draws_differ_between_microbatches(observation, judge):
    """Microbatches MUST draw different numbers. (A device draws more than once by one key, and the loss stays where the
    parts of the batch, or of each device's share of it, change places, though it does not where rows change places in
    each of them. Halves and thirds are tried, and microbatches as declared; of neighbours, and of every so-manieth
    row.)"""
    parts, keys = judge.see(observation.draws.parts), judge.see(observation.draws.keys)
    computed = 2 if observation.programs.step.recomputes is True else 1
    if parts and drawn_twice(keys[0], computed):
        judge.fail(
            [
                f"loss of a step: expected another one where each of {parts[-1]} parts of the batch takes the place "
                f"of the next one, saw it stay, and one key that a device draws by more than once. These draw the same "
                f"numbers: fold the number of the microbatch into the key"
            ]
        )


@pytest.mark.clause("NUM-9", applies=draws)
def test_no_key_is_used_twice(observation, judge):
    """A step MUST NOT draw twice with one key. (By JAX's own check of typed keys; others are given a type for it. Two
    layers, or two microbatches, with one key have the same mask. A key that is split twice alike, and drawn by once,
    or once more where a layer is computed again, harms nothing.)"""
    keys = observation.draws.keys
    computed = 2 if observation.programs.step.recomputes is True else 1
    once = isinstance(keys, tuple) and not drawn_twice(keys[0], computed)
    judge.clear(
        f"step 1: expected each key to be used once, saw: {said}; {how}"
        for said in judge.see(observation.draws.reused)
        for how in ["split it once, and pass its parts on" if said.startswith(SPLIT) else APART]
        if not (once and said.startswith((SPLIT, "In random_fold_in")))
    )


@pytest.mark.clause("NUM-9", applies=draws)
def test_no_key_is_used_in_two_steps(observation, judge):
    """A step MUST NOT draw by a key that another device, or another layer, has drawn by in an earlier step, and no
    device by those of every step, where others draw by new ones. (Keys that are added up come again: device 1 of step 1
    has that of device 0 of step 2.)"""
    keys = judge.see(observation.draws.keys)
    if behind := left_behind(keys):
        told_of = (
            f"each step: expected new keys on every device, saw {told(behind)} by the same keys in all steps, where "
        )
        judge.fail([f"{told_of}other devices draw by new ones; fold the step's number in on every device"])
    if found := again(keys):
        earlier, later, before, after = found
        judge.fail(
            [
                f"step {later + 1}: expected no key of an earlier step, saw {told(after)} made by one that made "
                f"{told(before)} in step {earlier + 1}; fold in one number after the other, as in "
                f"fold_in(fold_in(key, step), device), not fold_in(key, step + device); a key that is carried on "
                f"is split first, key, own = split(key), and devices and layers are folded into own"
            ]
        )


def told(draw):
    """What is drawn, and where."""
    return f"the {draw.shape} numbers of {f'device {draw.device}' if draw.device >= 0 else 'another draw'}"


@pytest.mark.clause("NUM-9", applies=both(distributed, draws, unless(brings_truth), splits_layers))
def test_shards_of_one_tensor_draw_different_numbers(observation, judge):
    """Devices that hold different units of a layer MUST draw different numbers for them. (If the loss stays where units
    change their device, with the weights that make and read them, and changes where they change places on it, each
    device masks its units alike.)"""
    judge.clear(
        f"first loss: expected another one where the units of {', '.join(paths[:4])} change their shards over {axis}, "
        f"saw it stay: each device of {axis} masks its own units by the same numbers; fold jax.lax.axis_index({axis!r})"
        f" into the key of what {axis} splits, and leave it out for what every device of {axis} has whole"
        for axis, paths in judge.see(observation.draws.tensor)
    )
