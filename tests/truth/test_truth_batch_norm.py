"""Is the truth of a CNN with batch normalisation true, its bound honest and sharp: as `test_truth_cnn`, and what a step
and an evaluation make of running statistics."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from meshproof.contract import Step, Trajectory, leaves, nest
from meshproof.measures.numerics import judge, judge_loss
from meshproof.measures.trajectories import judge_trajectory
from reference_impl.truth import BatchNormCNNTruth
from reference_impl.truth.batch_norm_cnn import EPSILON, MOMENTUM
from tests.truth.finite_differences import check_gradients

pytestmark = pytest.mark.any_stack

TINY = BatchNormCNNTruth(size=4, channels=(2, 3, 4), classes=5)
TRUTH, STEPS, BATCH = BatchNormCNNTruth(), 3, 64


def test_hand_written_gradients_are_the_finite_differences_of_the_loss():
    """Every element of every leaf's gradient equals the central difference of the loss in float64, to 1e-6."""
    gradients = check_gradients(TINY, TINY.batches(1, 4)[0], step=1e-6)
    assert all(gradient.any() for gradient in gradients.values())


def of_the_batch(x):
    """Mean and biased variance over all pixels, as Flax has them."""
    mean = x.mean((0, 1, 2))
    return mean, jnp.maximum(0, (x**2).mean((0, 1, 2)) - mean**2)


def one_after_another(x):
    """The same by sums with the largest error: each pixel is added to those before it."""
    pixels = x.reshape(-1, x.shape[-1])
    added = lambda sums, x: (sums + jnp.stack([x, x**2]), None)  # noqa: E731
    total, squares = jax.lax.scan(added, jnp.zeros((2, x.shape[-1])), pixels)[0]
    return total / len(pixels), squares / len(pixels) - (total / len(pixels)) ** 2


def of_each_device(x):
    """Those of the first eighth of the batch."""
    return of_the_batch(x[: len(x) // 8])


def unbiased(x):
    """The variance by one less than the number of pixels."""
    mean, variance = of_the_batch(x)
    pixels = x[..., 0].size
    return mean, variance * pixels / (pixels - 1)


def constant(x):
    """No gradient flows through the statistics."""
    return jax.lax.stop_gradient(of_the_batch(x))


def forward(parameters, x, statistics=of_the_batch, running=None):
    """Logits and statistics in JAX; by ``running`` ones, where they are given."""
    found = {}
    for i in range(2):
        kernel, norm = parameters[f"conv_{i}"]["kernel"], parameters[f"norm_{i}"]
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean, variance = (running[f"norm_{i}"][name] for name in ("mean", "var")) if running else statistics(x)
        found |= {f"norm_{i}/mean": mean, f"norm_{i}/var": variance}
        y = (x - mean) * (jax.lax.rsqrt(variance + EPSILON) * norm["scale"]) + norm["bias"]
        x = nn.max_pool(jax.nn.relu(y), (2, 2), (2, 2))
    return x.reshape(len(x), -1) @ parameters["dense"]["kernel"] + parameters["dense"]["bias"], found


@cache
def differentiated(statistics):
    """The mean cross-entropy of parameters and a batch with the statistics found, and its gradients, in float32."""

    def loss(parameters, batch):
        outputs, found = forward(parameters, batch["x"], statistics)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch["y"]).mean(), found

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def train(parameters, batches, statistics=of_the_batch):
    """The truth's training in float32 by JAX."""
    transform = optax.sgd(TRUTH.optimizer.learning_rate, momentum=TRUTH.optimizer.decay)
    state, steps, first = transform.init(parameters), [], None
    running = {path: np.float32(x.value) for path, x in TRUTH.initial_auxiliary().items()}
    for batch in batches:
        (value, found), gradients = differentiated(statistics)(parameters, batch)
        running = {path: MOMENTUM * old + (1 - MOMENTUM) * found[path] for path, old in running.items()}
        first = first or dict(leaves(gradients))
        updates, state = transform.update(gradients, state)
        parameters = optax.apply_updates(parameters, updates)
        momentum = {"momentum": optax.tree_utils.tree_get(state, "trace")}
        held = (dict(leaves(tree)) for tree in (parameters, momentum))
        steps.append(Step(float(value), *held, auxiliary=running))
    return Trajectory(first, tuple(steps))


@pytest.fixture(scope="module")
def reference():
    """The truth of the default case."""
    return TRUTH.train(TRUTH.initial_parameters(), TRUTH.batches(STEPS, BATCH))


def judged(trajectory, reference):
    """Verdicts on everything, running statistics too."""
    steps = zip(trajectory.steps, reference.value.steps, reference.rounding.steps, strict=True)
    running = [judge(*(step.auxiliary for step in three), "running statistics") for three in steps]
    return [*judge_trajectory(trajectory, reference), *running]


@pytest.mark.parametrize("statistics", [of_the_batch, one_after_another])
def test_float32_training_by_jax_stays_within_the_bound(reference, statistics):
    """Three steps, every leaf: a third of what is allowed is not reached, and a twentieth of it is used somewhere.

    An error of a sum over all pixels moves them all: without the ``lean`` of statistics two thirds would be reached."""
    verdicts = judged(train(TRUTH.initial_parameters(), TRUTH.batches(STEPS, BATCH), statistics), reference)
    assert all(verdict.passed and verdict.margin < 1 / 3 for verdict in verdicts), verdicts
    assert max(verdict.margin for verdict in verdicts) > 1 / 20, verdicts


def test_the_bound_is_not_vacuous(reference):
    """What is allowed of any leaf after three steps is below 1e-4 of it: no ReLU and no maximum may flip."""
    for verdict in judged(reference.value, reference):
        assert all(record.allowed < 1e-4 * record.signal for record in verdict.records), verdict


@pytest.mark.parametrize("fault", [of_each_device, unbiased, constant])
def test_another_norm_is_caught_in_every_kernel(reference, fault):
    """Statistics of a part of the batch, another variance, and statistics that are taken for constants."""
    _, gradients = differentiated(fault)(TRUTH.initial_parameters(), TRUTH.batches(1, BATCH)[0])
    verdict = judge(dict(leaves(gradients)), reference.value.gradients, reference.rounding.gradients)
    margins = {record.path: record.margin for record in verdict.records}
    assert all(margins[f"conv_{i}/kernel"] > 3 for i in range(2)), margins


def test_statistics_of_one_device_are_caught_in_every_running_one(reference):
    """They are beyond ten times every bound, after the first step."""
    seen = train(TRUTH.initial_parameters(), TRUTH.batches(1, BATCH), of_each_device).steps[0]
    verdict = judge(seen.auxiliary, reference.value.steps[0].auxiliary, reference.rounding.steps[0].auxiliary)
    assert all(record.failure == "exceeds" and record.margin > 10 for record in verdict.records), verdict


def test_an_evaluation_is_by_running_statistics(reference):
    """As JAX evaluates after training; by those before training it would be another loss."""
    last, batches = train(TRUTH.initial_parameters(), TRUTH.batches(STEPS, BATCH)).steps[-1], TRUTH.batches(2, 24)
    parameters, running = (jax.tree.map(np.float32, nest(tree)) for tree in (last.parameters, last.auxiliary))
    evaluated, loss, right = jax.jit(forward), 0.0, 0
    for batch in batches:
        outputs, _ = evaluated(parameters, batch["x"], running=running)
        loss += float(optax.softmax_cross_entropy_with_integer_labels(outputs, batch["y"]).sum())
        right += int((outputs.argmax(-1) == batch["y"]).sum())
    true, other = TRUTH.evaluate(parameters, batches, running), TRUTH.evaluate(parameters, batches)
    assert (true.count, true.correct, true.doubtful) == (48, right, 0)
    assert judge_loss(loss, true.loss, true.deviation).passed
    assert judge_loss(other.loss, true.loss, true.deviation).margin > 100


def test_five_steps_lower_the_loss():
    """The data can be learnt: five steps take at least a fifth off the loss."""
    steps = TRUTH.train(TRUTH.initial_parameters(), TRUTH.batches(5, BATCH)).value.steps
    assert steps[-1].loss < 0.8 * steps[0].loss
