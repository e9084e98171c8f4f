"""Layers, devices or steps that draw the same numbers mask alike: training goes on, with less noise than was meant."""

from operator import attrgetter

import pytest

from meshproof.contract import leaves, spec_axes
from meshproof.observing.draws import alike
from meshproof.observing.key_streams import again, alike_in_rows, drawn_twice, left_behind, may_mask, moves_on

from .applicability import both, brings_truth, distributed, draws, splits_layers, unless

SPLIT = "In random_split"
"""How JAX's check begins to tell of a key that was used before it is split."""

APART = "split the key, or fold in the number of the layer or the microbatch"
"""What parts the draws of two places."""


@pytest.mark.clause("NUM-9", applies=both(distributed, draws))
def test_draws_differ_between_devices(case, observation, judge):
    """Devices that hold different examples MUST draw different numbers. (If the loss stays where examples change their
    device, and changes where they change places on it, each device draws the same mask; if it stays where those of two
    devices change places, these two do; unless all that is drawn are single numbers, or numbers for whole parameters,
    or, by one key in one program for all devices, microbatches draw alike. Where all of the mesh splits examples, no
    draw for each of a device's rows has the keys of the other devices, if another has not.)"""
    usual, places, devices = (judge.see(getattr(observation.draws, name)) for name in ("usual", "reversed", "shard"))
    keys, shown = observation.draws.keys, observation.start.layouts.parameters
    weights = {leaf.shape for leaf in shown} if isinstance(shown, tuple) else set()
    rows, parts, pairs = rows_of_a_device(case), observation.draws.parts, observation.draws.pairs
    if isinstance(keys, tuple):
        one_program = all(draw.device < 0 for draw in keys[0])
        microbatches = one_program and isinstance(parts, tuple) and parts and by_one_key(keys, observation)
        if microbatches or not may_mask(keys[0], rows, weights):
            return
    if alike(usual, devices) and not alike(usual, places):
        seen = f"expected another one than {usual:.9g} where each example moves to the next device, saw {devices:.9g}"
        places = f"where examples change places on their device it is {places:.9g}"
        advice = "fold the device's index into the key, or draw for the global batch"
        judge.fail([f"first loss: {seen}; {places}. Each device draws the same numbers: {advice}"])
    if isinstance(pairs, tuple) and pairs:
        told = ", ".join(f"{one} and {other}" for one, other in pairs)
        judge.fail(
            [
                f"first loss: expected another one than {usual:.9g} where the examples of two devices change places, "
                f"saw it stay for the shards {told}. These draw the same numbers: fold each device's own index into "
                f"the key"
            ]
        )
    judge.see(shown)
    if isinstance(keys, tuple) and (shared := alike_in_rows(keys[0], rows, weights)):
        told_of = f"saw the {shared.shape} numbers of a device's rows by the same keys on all, and others by their own"
        judge.fail([f"step 1: expected keys of each device's own, {told_of}: fold the device's index into every key"])


def rows_of_a_device(case):
    """How many examples a device has; 0 where the mesh splits more than examples, or nobody says."""
    specs = (case.contract.batch or {}).values()
    split = {axis for spec in specs for axis in spec_axes(spec[:1])}
    rows = len(next(iter(leaves(next(iter(case.strategy.batches(1))))))[1])
    return rows // case.devices if split >= {axis for axis, size in case.mesh.items() if size > 1} else 0


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
    if parts and by_one_key(keys, observation):
        judge.fail(
            [
                f"loss of a step: expected another one where each of {parts[-1]} parts of the batch takes the place "
                f"of the next one, saw it stay, and one key that a device draws by more than once. These draw the same "
                f"numbers: fold the number of the microbatch into the key"
            ]
        )


def by_one_key(keys, observation):
    """Whether a device draws more than once by one key. A layer that the backward pass computes again draws again."""
    return drawn_twice(keys[0], 2 if observation.programs.step.recomputes is True else 1)


@pytest.mark.clause("NUM-9", applies=draws)
def test_no_key_is_used_twice(observation, judge):
    """A step MUST NOT draw twice with one key. (By JAX's own check of typed keys; others are given a type for it. Two
    layers, or two microbatches, with one key have the same mask. A key that is split twice alike, and drawn by once,
    or once more where a layer is computed again, harms nothing.)"""
    keys = observation.draws.keys
    once = isinstance(keys, tuple) and not by_one_key(keys, observation)
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
