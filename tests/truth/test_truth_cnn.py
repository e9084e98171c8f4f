"""Is the CNN's truth true, its bound honest and sharp: finite differences, JAX in float32, planted faults."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from meshproof.contract import Step, Trajectory, leaves
from meshproof.measures.numerics import judge
from meshproof.measures.trajectories import judge_trajectory
from reference_impl.truth import CNNTruth
from reference_impl.truth.cnn import largest, route, unwindowed, windows
from reference_impl.truth.rounding import Rounded, exact
from tests.truth.finite_differences import check_gradients

pytestmark = pytest.mark.any_stack

TINY = CNNTruth(size=4, channels=(2, 3, 4), classes=5, seed=2)
STEPS, BATCH = 3, 64


def test_hand_written_gradients_are_the_finite_differences_of_the_loss():
    """Every element of every leaf's gradient equals the central difference of the loss in float64, to 1e-6."""
    gradients = check_gradients(TINY, TINY.batches(1, 4)[0], step=1e-6)
    assert all(gradient.any() for gradient in gradients.values())


def logits(parameters, x, padding="SAME", pool=nn.max_pool):
    """The CNN in JAX, with what a saboteur may change."""
    for name in ("conv_0", "conv_1"):
        layer = parameters[name]
        x = jax.lax.conv_general_dilated(
            x, layer["kernel"], (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        if padding == "VALID":
            x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x = pool(jax.nn.relu(x + layer["bias"]), (2, 2), (2, 2))
    return x.reshape(len(x), -1) @ parameters["dense"]["kernel"] + parameters["dense"]["bias"]


def loss_and_gradients(parameters, batch, **faults):
    """The mean cross-entropy and its gradients in float32, as JAX has them."""

    def loss(parameters):
        outputs = logits(parameters, batch["x"], **faults)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch["y"]).mean()

    return jax.jit(jax.value_and_grad(loss))(parameters)


def train(truth, parameters, batches):
    """The truth's training in float32 by JAX."""
    transform = optax.sgd(truth.optimizer.learning_rate, momentum=truth.optimizer.decay)
    state, steps, first = transform.init(parameters), [], None
    for batch in batches:
        value, gradients = loss_and_gradients(parameters, batch)
        first = first or dict(leaves(gradients))
        updates, state = transform.update(gradients, state)
        parameters = optax.apply_updates(parameters, updates)
        momentum = {"momentum": optax.tree_utils.tree_get(state, "trace")}
        steps.append(Step(float(value), dict(leaves(parameters)), dict(leaves(momentum))))
    return Trajectory(first, tuple(steps))


@pytest.fixture(scope="module")
def reference():
    """The truth of the default case."""
    truth = CNNTruth()
    return truth.train(truth.initial_parameters(), truth.batches(STEPS, BATCH))


def test_float32_training_by_jax_stays_within_the_bound(reference):
    """Three steps, every leaf: a third of what is allowed is not reached, and a twentieth of it is used somewhere."""
    truth = CNNTruth()
    verdicts = judge_trajectory(train(truth, truth.initial_parameters(), truth.batches(STEPS, BATCH)), reference)
    assert all(verdict.passed and verdict.margin < 1 / 3 for verdict in verdicts), verdicts
    assert max(verdict.margin for verdict in verdicts) > 1 / 20, verdicts


def test_the_bound_is_not_vacuous(reference):
    """What is allowed of any leaf after three steps is below 1e-5 of it: no ReLU and no maximum may flip."""
    for verdict in judge_trajectory(reference.value, reference):
        assert all(record.allowed < 1e-5 * record.signal for record in verdict.records), verdict


@pytest.mark.parametrize("fault", [{"padding": "VALID"}, {"pool": nn.avg_pool}], ids=["valid padding", "average pool"])
def test_another_network_is_caught_in_every_leaf(reference, fault):
    """Convolutions that see no border, and windows that are averaged, are beyond ten times every leaf's bound."""
    truth = CNNTruth()
    _, gradients = loss_and_gradients(truth.initial_parameters(), truth.batches(1, BATCH)[0], **fault)
    verdict = judge(dict(leaves(gradients)), reference.value.gradients, reference.rounding.gradients)
    assert all(record.failure == "exceeds" and record.margin > 10 for record in verdict.records), verdict


def test_five_steps_lower_the_loss():
    """The data can be learnt: five steps take at least a fifth off the loss."""
    truth = CNNTruth()
    steps = truth.train(truth.initial_parameters(), truth.batches(5, BATCH)).value.steps
    assert steps[-1].loss < 0.8 * steps[0].loss


def test_windows_are_the_images_squares():
    """A window holds its 2×2 pixels row by row, and windows put together again are the image."""
    image = exact(np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3))
    squares = windows(image)
    assert squares.value[1, 1, 2, 0].tolist() == image.value[1, 2:4, 4:6, 0].ravel().tolist()
    assert np.array_equal(unwindowed(squares).value, image.value)


def test_a_maximum_that_may_be_another_holds_the_whole_gradient():
    """Of two equal entries either may get all of the gradient g: both hold g²/2; ten deviations below, none."""
    z = Rounded(np.array([[1.0, 1.0, 1 - 1e-3, 0.0]]), np.full((1, 4), 0.5e-8))
    gradient = route(exact(np.array([2.0])), z)
    assert gradient.value.tolist() == [[2, 0, 0, 0]]
    np.testing.assert_allclose(gradient.variance, [[2, 2, 0, 0]], atol=1e-12)
    assert largest(z).variance == pytest.approx(0.75e-8)
    leaning = route(exact(np.array([2.0])), z, lean=1)
    assert leaning.value.sum() == pytest.approx(2)
    assert leaning.value[0, 1] == pytest.approx(2 * np.sqrt(0.5))


def test_windows_that_tie_widen_the_bound_and_hold_either_choice():
    """Of an image and kernels that are their own mirror images, JAX may take either maximum: the bound is vacuous."""
    parameters = TINY.initial_parameters()
    kernel = parameters["conv_0"]["kernel"]
    parameters["conv_0"]["kernel"] = kernel + kernel.swapaxes(0, 1)
    batch = TINY.batches(1, 4)[0]
    batch["x"] += batch["x"].swapaxes(1, 2).copy()
    gradients, *_ = judge_trajectory(train(TINY, parameters, [batch]), TINY.train(parameters, [batch]))
    assert gradients.records[0].failure == "vacuous"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.pop("y"), r"batch 0 has the fields \['x'\] and no 'y'"),
        (lambda b: b.update(x=b["x"][:, :3]), r"batch 0 x has shape \(4, 3, 4, 2\), expected \(4, 4, 4, 2\)"),
        (lambda b: b.update(x=b["x"][:0], y=b["y"][:0]), "batch 0 is empty"),
        (lambda b: b.update(y=b["y"] + 5), "labels from 5 to 9, outside 0…4"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change, message):
    """A field that is missing, empty, of another shape or out of range is an error that names what and both."""
    batch = dict(TINY.batches(1, 4)[0])
    batch["y"] = np.array([0, 1, 2, 4], np.int32)
    change(batch)
    with pytest.raises(ValueError, match=message):
        TINY.train(TINY.initial_parameters(), [batch])


def test_images_that_cannot_be_halved_are_errors():
    """Six pixels cannot be halved twice."""
    with pytest.raises(ValueError, match="6×6 cannot be halved to a multiple of 4"):
        CNNTruth(size=6)
