"""A gradient that is 0 but for rounding is held to its bound, and to no share of a signal that it has not."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from meshproof.contract import ReferenceTrajectory, Step, Trajectory
from meshproof.measures.numerics import agree, judge
from meshproof.measures.trajectories import cancelled, judge_trajectory
from tests.unit.test_numerics import only_failure

KEY = "attention/key/bias"
"""A bias that the softmax takes out again: its gradient is 0, and what float32 has of it is rounding."""


def with_key_bias(deviation):
    """A trajectory with such a bias, whose gradient is uncertain by so much."""
    signal, noise = {"kernel": np.ones(16), KEY: np.full(4, 1e-17)}, {"kernel": np.full(16, 1e-7)}
    true, rounding = (dict(tree) for tree in (signal, noise | {KEY: np.full(4, deviation)}))
    moments, uncertain = {f"mu/{path}": true[path] for path in true}, {f"mu/{path}": rounding[path] for path in true}
    return ReferenceTrajectory(
        Trajectory(true, (Step(1.0, true, moments),)), Trajectory(rounding, (Step(1e-7, rounding, uncertain),))
    )


def test_a_gradient_that_cancels_is_held_against_the_others():
    """It cannot be told from 0, and no data would change that: its bound, and its moments', need no signal."""
    reference = with_key_bias(1e-8)
    assert cancelled(reference).keys() == {KEY}
    assert all(verdict.passed for verdict in judge_trajectory(reference.value, reference))
    wrong = judge(reference.value.gradients | {KEY: np.full(4, 1e-6)}, *gradients(reference), cancelled=[KEY])
    assert only_failure(wrong).failure == "exceeds", "what is no longer rounding fails"
    assert only_failure(judge(reference.value.gradients, *gradients(reference))).failure == "vacuous"


def narrow(moment, first=1.0, digits=0.5):
    """Verdicts on a bias that began at 0, of which Adam shows little more than signs: its bound is 1.2 of the signal,
    and that of its moments as given. Its first value is ``first`` times that of truth."""
    bias, moments = {"b": np.ones(4)}, {"mu/b": np.ones(4), "nu/b": np.ones(4)}
    by = {"mu/b": np.full(4, moment / 6), "nu/b": np.full(4, 1e-4)}
    reference = ReferenceTrajectory(
        Trajectory(bias, (Step(1.0, bias, moments),)),
        Trajectory({"b": np.full(4, 1e-4)}, (Step(1e-4, {"b": np.full(4, 0.2)}, by),)),
    )
    ours = replace(reference.value, steps=(Step(1.0, {"b": np.full(4, first)}, moments),))
    return [verdict for verdict in judge_trajectory(ours, reference, digits) if not verdict.passed]


def test_a_parameter_of_signs_is_held_to_its_bound_beside_moments_that_tell_more():
    """In 16 bits alone, and not where a moment proves as little."""
    assert not narrow(0.4)
    [wrong] = narrow(0.4, first=2.5)
    assert only_failure(wrong).failure == "exceeds"
    assert len(narrow(0.6)) == 2, "the moment and the parameter"
    assert {only_failure(each).path for each in narrow(0.005, digits=1e-2)} == {"b"}


def test_two_runs_of_a_gradient_that_cancels_agree_within_its_bound():
    """As on two meshes, or in two frameworks: what rounding leaves of it is another in each."""
    one, rounding = gradients(with_key_bias(1e-8))
    other = one | {KEY: np.full(4, -3e-8)}
    assert agree(one, other, rounding, cancelled=[KEY]).passed
    assert only_failure(agree(one, other, rounding)).failure == "vacuous"
    wrong = one | {KEY: np.full(4, 1e-6)}
    assert only_failure(agree(one, wrong, rounding, cancelled=[KEY])).failure == "exceeds"


@pytest.mark.parametrize("shown", ["moments", "parameters"])
def test_what_cancels_is_seen_without_gradients(shown):
    """In moments, or where there are none in a bias that began at 0."""
    value, rounding = (
        Trajectory({}, tuple(replace(step, optimizer_state={}) if shown == "parameters" else step for step in of.steps))
        for of in (with_key_bias(1e-8).value, with_key_bias(1e-8).rounding)
    )
    assert cancelled(ReferenceTrajectory(value, rounding)).keys() == {KEY}


@pytest.mark.parametrize(("first", "expected"), [(0.0, {KEY}), (1e-3, set())])
def test_what_cancels_behind_a_layer_of_zeros_is_seen_later(first, expected):
    """Its gradient is exactly 0 in the first step, and noise in the second; one that was a number is not asked again,
    for what rounding has made of a moment by then is more."""

    def run(kernel, key, later):
        names = {"kernel": np.full(16, kernel), KEY: np.full(4, key)}
        moments = [{f"mu/{path}": value for path, value in (names | {KEY: np.full(4, at)}).items()} for at in later]
        return Trajectory(names, tuple(Step(1.0, names, moment) for moment in moments))

    reference = ReferenceTrajectory(run(1.0, first, (first, 1e-17)), run(1e-7, 1e-10 * first, (1e-10 * first, 1e-8)))
    assert cancelled(reference).keys() == expected


@pytest.mark.parametrize("deviation", [1e-2, inf])
def test_a_gradient_as_uncertain_as_the_others_are_large_is_not_excused(deviation):
    """There nothing is known of it, whatever its cause."""
    reference = with_key_bias(deviation)
    assert not cancelled(reference)
    assert any(not verdict.passed for verdict in judge_trajectory(reference.value, reference))


def gradients(reference):
    """Of truth, and their deviations."""
    return reference.value.gradients, reference.rounding.gradients


def test_few_numbers_beside_moments_may_be_sums_whose_terms_cancel():
    """Their bound may exceed their value. What has a parameter's name, or more elements, is judged as ever."""
    value = {"w": np.ones(4)}
    state = {"mu/w": np.ones(4), "distance": np.array(1e-9), "sums": np.full(17, 1e-9)}
    rounding = {path: np.full(np.shape(leaf), 1e-9) for path, leaf in state.items()}
    steps = [(Step(1.0, value, state),), (Step(1e-7, {"w": np.full(4, 1e-7)}, rounding),)]
    reference = ReferenceTrajectory(*(Trajectory({}, step) for step in steps))
    assert cancelled(reference).keys() == {"distance"}
    verdict = judge(state, state, rounding, cancelled=cancelled(reference))
    assert [record.path for record in verdict.failures] == ["sums"]
    far = judge(state | {"distance": np.array(1e-8)}, state, rounding, cancelled=cancelled(reference))
    assert [record.path for record in far.failures] == ["distance", "sums"]


def joined(gradient, parameter, uncertain, by):
    """A trajectory of a kernel and one bias for queries, keys and values, and its deviations: Adam moves each by its
    whole rate."""
    steps = [
        Step(1.0, {"kernel": np.ones(96), "bias": parameter}, {"mu/kernel": np.ones(96), "mu/bias": gradient}),
        Step(1e-7, {"kernel": np.full(96, 1e-7), "bias": by}, {"mu/kernel": np.full(96, 1e-7), "mu/bias": uncertain}),
    ]
    return ReferenceTrajectory(*(Trajectory({}, (step,)) for step in steps))


KEYS = np.repeat([False, True, False], 4)


def test_a_part_of_a_leaf_may_cancel():
    """The keys of a joined bias: of them rounding decides, and the rest is judged as sharply as ever."""
    gradient, uncertain = np.where(KEYS, 1e-9, 0.5), np.full(12, 1e-8)
    moved, by = np.where(KEYS, 0.01, -0.01), np.where(KEYS, 0.01, 1e-9)
    reference = joined(gradient, moved, uncertain, by)
    zero = cancelled(reference)
    assert zero.keys() == {"bias"} and np.array_equal(zero["bias"], KEYS)
    assert all(verdict.passed for verdict in judge_trajectory(reference.value, reference) if verdict.records)

    def verdict(saw):
        return judge({"bias": saw}, {"bias": moved}, {"bias": by}, cancelled=zero)

    assert verdict(np.where(KEYS, -0.01, moved)).passed
    assert only_failure(verdict(np.where(KEYS, 1.0, moved))).failure == "exceeds", "no rate moves a bias so far"
    assert only_failure(verdict(moved + 1e-6 * ~KEYS)).failure == "exceeds", "the rest is no noise"
    assert only_failure(judge({"bias": moved}, {"bias": moved}, {"bias": by})).failure == "vacuous"
