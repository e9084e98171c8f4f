"""The judge of numbers judged: what passes, what fails, and what a failure says."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from meshproof.contract import ReferenceTrajectory, Step, Trajectory
from meshproof.measures.numerics import MULTIPLE, agree, bitwise, judge, judge_loss
from meshproof.measures.trajectories import judge_trajectory

TRUTH = {"dense_0/kernel": np.arange(1.0, 13).reshape(3, 4), "dense_0/bias": np.ones(4), "count": np.array(3, np.int32)}
ROUNDING = {path: np.full(value.shape, 1e-6 if value.ndim else 0.0) for path, value in TRUTH.items()}
OBSERVED = {path: value.astype(np.float32 if value.ndim else np.int32) for path, value in TRUTH.items()}


def changed(path, change, tree=OBSERVED):
    """The tree with one leaf changed."""
    return {**tree, path: change(np.array(tree[path]))}


def only_failure(verdict):
    """The one failed record."""
    assert len(verdict.failures) == 1, verdict
    return verdict.failures[0]


def test_equal_leaves_pass_with_margin_zero():
    """What equals truth has no error; an integer that is exact has margin 0, not 0/0."""
    verdict = judge(OBSERVED, TRUTH, ROUNDING, "parameters")
    assert verdict.passed
    assert [record.path for record in verdict.records] == list(TRUTH)
    assert verdict.margin == 0
    assert verdict.first_divergent is None
    assert str(verdict) == "parameters: 3 leaves within their bounds, largest margin 0"


def test_the_bound_is_the_multiple_of_the_deviations_norm():
    """An error of five deviations in every element passes with margin 5/6, one of seven fails with 7/6."""
    for deviations, passes in ((5, True), (7, False)):
        observed = changed("dense_0/bias", lambda x, n=deviations: x.astype(np.float64) + n * 1e-6)
        verdict = judge(observed, TRUTH, ROUNDING)
        assert verdict.passed is passes
        assert verdict.margin == pytest.approx(deviations / MULTIPLE, rel=1e-6)
        record = next(record for record in verdict.records if record.path == "dense_0/bias")
        assert record.error == pytest.approx(deviations * 2e-6, rel=1e-6)
        assert record.relative == pytest.approx(deviations * 1e-6, rel=1e-6)
        assert record.signal == 2


@pytest.mark.parametrize(
    ("observed", "failure", "message"),
    [
        ({p: v for p, v in OBSERVED.items() if p != "dense_0/bias"}, "missing", "dense_0/bias is missing from the run"),
        ({**OBSERVED, "dense_9/bias": np.ones(4)}, "unexpected", "dense_9/bias is in the run and unknown to truth"),
        (changed("dense_0/kernel", np.transpose), "shape", "expected shape (3, 4) of truth, saw (4, 3) in the run"),
        (changed("dense_0/bias", lambda x: x[None]), "shape", "expected shape (4,) of truth, saw (1, 4) in the run"),
        (
            changed("dense_0/bias", lambda x: x * 1j),
            "dtype",
            "expected real numbers, saw complex64 in the run and float64 in truth",
        ),
        (changed("count", lambda x: x + 1), "differs", "the first at () is 4 and 3; integers must be exact"),
        (changed("dense_0/bias", lambda x: x * 0), "exceeds", "it is all zeros: never computed, or never written back"),
        (changed("dense_0/bias", lambda x: x * 8), "exceeds", "it is 8 times truth: a sum instead of a mean"),
        (
            changed("dense_0/bias", lambda x: x / 8),
            "exceeds",
            "it is 0.125 times truth: a mean instead of a sum, or tw",
        ),
        (changed("dense_0/bias", lambda x: x * 430.2073), "exceeds", "it is 430.2073 times truth ["),
        (changed("dense_0/bias", lambda x: x * 1.0001), "exceeds", "it is 1.0001 times truth ["),
        (
            changed("dense_0/kernel", np.flipud),
            "exceeds",
            "of its 3 equal parts in dimension 0 2 have changed places: part 0 holds what part 2 should",
        ),
    ],
    ids=[
        "missing",
        "unexpected",
        "shape",
        "rank",
        "complex",
        "count",
        "zeros",
        "sum",
        "mean",
        "no sum",
        "scale",
        "order",
    ],
)
def test_each_failure_names_the_leaf_and_says_which_it_is(observed, failure, message):
    """A missing, unexpected, misshapen, unreal, inexact or wrong leaf is one record that says so in words."""
    verdict = judge(observed, TRUTH, ROUNDING, "parameters after step 2")
    record = only_failure(verdict)
    assert record.failure == failure
    assert message in str(verdict)
    assert str(verdict).startswith("parameters after step 2: 1 of ")
    assert record.margin > 1


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (
            8.0,
            "what the step adds is 8 times what it adds in truth: its rate, or a factor of gradients [",
        ),
        (1.96, "what the step adds is 1.96 times what it adds in truth: its rate"),
        (0.0, "it is what it was before the step"),
    ],
)
def test_a_step_that_goes_too_far_is_told_as_that(added, message):
    """Of parameters that began alike, as with a rate that each device takes for its own."""
    path, step = "dense_0/kernel", np.random.default_rng(5).standard_normal((3, 4)) / 100
    for where in (np.s_[:], np.s_[:1, :1]):  # one element is so many times any other
        is_, by, began = TRUTH[path][where], ROUNDING[path][where], (TRUTH[path] - step)[where]
        verdict = judge({path: began + added * step[where]}, {path: is_}, {path: by}, began={path: began})
        assert message in str(verdict)


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_value_that_is_not_finite_fails_wherever_it_is(value):
    """NUM-10: one NaN or infinity in one element fails its leaf and is shown with its index."""

    def spoil(x):
        x[1, 2] = value
        return x

    record = only_failure(judge(changed("dense_0/kernel", spoil), TRUTH, ROUNDING))
    assert record.failure == "non-finite"
    assert record.margin == inf
    assert f"is not finite in the run: 1 of 12 elements, the first at (1, 2) is {value}" in str(record)
    record = only_failure(judge(OBSERVED, changed("dense_0/kernel", spoil, TRUTH), ROUNDING))
    assert "is not finite in truth" in str(record)


@pytest.mark.parametrize(("deviation", "share"), [(1e-2, "0.06"), (inf, "inf"), (nan, "nan")])
def test_a_bound_above_a_hundredth_of_the_signal_fails_even_where_nothing_differs(deviation, share):
    """NUM-10: a wide, infinite or undefined bound cannot judge, and says so instead of passing."""
    rounding = changed("dense_0/bias", lambda x: np.full(4, deviation), ROUNDING)
    record = only_failure(judge(OBSERVED, TRUTH, rounding))
    assert record.failure == "vacuous"
    assert f"cannot be judged: its bound is {share} of the signal, more than 0.01" in str(record)


def test_a_bound_of_nothing_needs_a_signal():
    """A leaf that is exactly zero and has no rounding is judged exactly; one with rounding cannot be judged."""
    zero, bound = {"w": np.zeros(3)}, {"w": np.full(3, 1e-9)}
    assert judge(zero, zero, zero).passed
    assert only_failure(judge(zero, zero, bound)).failure == "vacuous"
    record = only_failure(judge({"w": np.array([0, 1e-30, 0])}, zero, zero))
    assert (record.failure, record.margin, record.relative) == ("exceeds", inf, inf)


@pytest.mark.parametrize(("change", "failure"), [(0.1, None), (1e-8, "vacuous")])
def test_what_a_step_brings_back_to_nothing_is_held_against_the_step(change, failure):
    """Its bound is rounding of what it was: small beside the change, however large beside what is left."""
    left, bound = {"b": np.full(3, 1e-10)}, {"b": np.full(3, 1e-9)}
    [record] = judge(left, left, bound, changes={"b": np.full(3, change)}).records
    assert record.failure == failure
    [record] = judge({"b": np.full(3, 1e-7)}, left, bound, changes={"b": np.full(3, change)}).records
    assert record.failure == "exceeds"


def test_nothing_to_judge_is_not_a_pass():
    """No leaves at all is a failure that says so."""
    verdict = judge({}, {}, {}, "gradients")
    assert not verdict.passed
    assert verdict.margin == inf
    assert str(verdict) == "gradients: nothing was judged, there are no leaves"


def test_a_broken_judge_is_an_error():
    """Truth and rounding of different leaves or shapes are no verdict on the run but an error."""
    with pytest.raises(ValueError, match=r"only one of truth and its rounding: \['dense_0/bias'\]"):
        judge(OBSERVED, TRUTH, {path: value for path, value in ROUNDING.items() if path != "dense_0/bias"})
    with pytest.raises(ValueError, match=r"dense_0/bias: truth has shape \(4,\), its rounding \(2,\)"):
        judge(OBSERVED, TRUTH, {**ROUNDING, "dense_0/bias": np.ones(2)})


def test_the_first_divergent_leaf_is_the_first_in_model_order():
    """Not the worst, not the first observed: truth's own order says which leaf to look at first."""
    observed = dict(reversed({path: value * 2 for path, value in OBSERVED.items()}.items()))
    verdict = judge(observed, TRUTH, ROUNDING)
    assert verdict.first_divergent.path == "dense_0/kernel"
    assert [record.path for record in verdict.failures] == list(TRUTH)
    assert "3 of 3 leaves failed; the first in model order is dense_0/kernel" in str(verdict)


@pytest.mark.parametrize(
    ("size", "differing", "by", "dtype", "passes"),
    [
        (512, 5, 1, np.int8, True),
        (512, 6, 1, np.int8, False),
        (512, 1, 2, np.int8, False),
        (512, 5, 1, np.uint8, True),
        (512, 1, 1, np.int32, False),
        (512, 1, 1, bool, False),
        (16, 1, 1, np.int8, True),
        (16, 2, 1, np.int8, False),
    ],
)
def test_few_integers_of_8_bits_may_be_rounded_otherwise(size, differing, by, dtype, passes):
    """By one, as a quantized moment whose float lies in the middle of two; a count, a key or a mask may not."""
    truth = {"mu/q": np.zeros(size, dtype)}
    observed = {"mu/q": np.where(np.arange(size) < differing, by, 0).astype(dtype)}
    assert judge(observed, truth, {"mu/q": np.zeros(size)}).passed is passes


def test_integers_beyond_float64_are_compared_exactly():
    """2⁵³ and 2⁵³ + 1 are one float64, and different counts."""
    one, other = {"count": np.array(2**53)}, {"count": np.array(2**53 + 1)}
    assert only_failure(judge(other, one, {"count": np.array(0.0)})).failure == "differs"
    assert only_failure(agree(one, other, {"count": np.array(0.0)})).failure == "differs"


def test_low_precision_leaves_are_numbers_too():
    """A bfloat16 leaf is judged by its values: exact where they are, and beyond the bound where they are rounded."""
    from ml_dtypes import bfloat16

    assert judge(changed("dense_0/bias", lambda x: x.astype(bfloat16)), TRUTH, ROUNDING).passed
    truth, rounding = {"w": np.array([1.001])}, {"w": np.array([1e-7])}
    assert only_failure(judge({"w": np.array([1.001], bfloat16)}, truth, rounding)).margin > 100


def test_a_loss_is_judged_as_a_leaf():
    """A scalar passes within its bound, and fails with the same words beyond it or where it is NaN."""
    assert judge_loss(2.0 + 5e-7, 2.0, 1e-7, "loss of step 1").passed
    assert "loss of step 1: loss differs from truth: it is 1.05 times" in str(
        judge_loss(np.float32(2.1), 2.0, 1e-7, "loss of step 1")
    )
    assert judge_loss(nan, 2.0, 1e-7).failures[0].failure == "non-finite"


def test_a_trajectory_is_judged_in_the_order_of_computation():
    """Gradients first, then each step's loss, optimizer state and parameters; unequal steps are an error."""
    leaf, none = {"w": np.ones(2)}, {"w": np.full(2, 1e-7)}
    value = Trajectory(leaf, (Step(1.0, leaf, leaf), Step(0.5, leaf, leaf)))
    rounding = Trajectory(none, (Step(1e-7, none, none), Step(1e-7, none, none)))
    verdicts = judge_trajectory(value, ReferenceTrajectory(value, rounding))
    assert all(verdict.passed for verdict in verdicts)
    assert [verdict.part for verdict in verdicts] == [
        "gradients of step 1",
        *("loss of step 1", "optimizer state after step 1", "parameters after step 1"),
        *("loss of step 2", "optimizer state after step 2", "parameters after step 2"),
    ]
    with pytest.raises(ValueError, match="observed 1 steps, truth has 2"):
        judge_trajectory(Trajectory(leaf, value.steps[:1]), ReferenceTrajectory(value, rounding))


def test_an_optimizer_that_keeps_nothing_is_not_judged():
    """As plain SGD; one that keeps nothing where its truth does has lost it."""
    leaf, none = {"w": np.ones(2)}, {"w": np.full(2, 1e-7)}
    kept, empty = (Trajectory(leaf, (Step(1.0, leaf, state),)) for state in (leaf, {}))
    rounding = Trajectory(none, (Step(1e-7, none, none),))
    parts = {verdict.part: verdict.passed for verdict in judge_trajectory(empty, ReferenceTrajectory(empty, rounding))}
    assert parts == dict.fromkeys(("gradients of step 1", "loss of step 1", "parameters after step 1"), True)
    *_, state, _ = judge_trajectory(empty, ReferenceTrajectory(kept, rounding))
    assert not state.passed


def test_two_runs_agree_within_the_root_of_two():
    """NUM-8: independent errors of both allow √2 of what one may err, symmetrically, and name the run that differs."""
    for deviations, passes in ((8, True), (9, False)):
        other = changed("dense_0/bias", lambda x, n=deviations: x.astype(np.float64) + n * 1e-6)
        for left, right in ((OBSERVED, other), (other, OBSERVED)):
            verdict = agree(left, right, ROUNDING, "nnx against jax")
            assert verdict.passed is passes
            assert verdict.margin == pytest.approx(deviations / (MULTIPLE * 2**0.5), rel=1e-6)
    less = {path: value for path, value in OBSERVED.items() if path != "dense_0/bias"}
    assert "missing from nnx" in str(agree(OBSERVED, less, ROUNDING, names=("jax", "nnx")))
    assert "in nnx and unknown to jax" in str(agree(less, OBSERVED, ROUNDING, names=("jax", "nnx")))
    assert "missing from nnx" in str(agree(less, less, ROUNDING, names=("jax", "nnx")))
    assert "has no bound" in str(agree({"v": np.ones(1)}, {"v": np.ones(1)}, {}))


def test_bitwise_equality_is_of_bytes():
    """NUM-5, NUM-6: equal NaNs are equal, −0 is not 0, one last bit, another dtype or leaf is a difference."""
    run = {"w": np.array([[1.0, nan], [0.0, 2.0]], np.float32), "n": np.array(7), "e": np.zeros((0, 3))}
    assert bitwise(run, {path: value.copy() for path, value in run.items()}).passed
    bit = changed("w", lambda x: np.nextafter(x, np.float32(9)), run)
    record = only_failure(bitwise(run, bit, "copies of step 3", ("device 0", "device 5")))
    assert (record.failure, record.error, record.signal) == ("differs", 3, 4)
    assert "differs in bits between device 0 and device 5: 3 of 4 elements, the first at (0, 0) is 1.0 and" in str(
        record
    )
    negative = changed("w", lambda x: np.where(x == 0, np.float32(-0.0), x), run)
    assert "the first at (1, 0) is 0.0 and -0.0" in str(bitwise(run, negative))
    assert only_failure(bitwise(run, changed("w", lambda x: x.astype(np.float64), run))).failure == "dtype"
    assert only_failure(bitwise(run, changed("w", np.ravel, run))).failure == "shape"
    assert only_failure(bitwise(run, {"w": run["w"], "n": run["n"]})).failure == "missing"
    assert not bitwise({}, {}).passed
