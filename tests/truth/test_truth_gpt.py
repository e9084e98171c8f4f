"""Is the GPT's truth true, is its bound honest and sharp: finite differences, float32 in JAX, and planted faults."""

from __future__ import annotations

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshproof.contract import leaves
from meshproof.measures.numerics import judge
from reference_impl.models import gpt
from reference_impl.models.gpt_flax import FlaxGPT
from reference_impl.models.layout import Layout
from reference_impl.truth import FlaxGPTTruth, GPTTruth, Momentum
from reference_impl.truth.operations import (
    causal_softmax,
    gelu,
    gelu_backward,
    normalise,
    normalise_backward,
    scatter_add,
    softmax_backward,
)
from reference_impl.truth.rounding import Rounded, exact
from tests.truth.finite_differences import check_gradients

pytestmark = pytest.mark.any_stack

TINY = GPTTruth(vocab=7, length=5, embed=6, heads=2, head_dim=4, mlp=9, blocks=2, seed=3)
BATCH = 16


@pytest.mark.parametrize("truth", [TINY, replace(TINY, dropout=0.3), FlaxGPTTruth(**vars(TINY) | {"dropout": 0.3})])
def test_hand_written_gradients_are_the_finite_differences_of_the_loss(truth):
    """Every leaf's gradient, along three random directions, equals the central difference of the float64 loss."""
    check_gradients(truth, {**truth.batches(1, 4)[0], "step": 2}, draws=3)


def test_data_can_be_learnt_and_is_these_tokens():
    """A token is followed by the same other token three times in four; y is x one position on; the draws are fixed."""
    first, second = GPTTruth().batches(2, 64)
    for batch in (first, second):
        assert batch["x"].dtype == batch["y"].dtype == np.int32
        assert np.array_equal(batch["x"][:, 1:], batch["y"][:, :-1])
    assert not np.array_equal(first["x"], second["x"])
    pairs = np.stack([first["x"], first["y"]], -1).reshape(-1, 2)
    followers = [np.bincount(pairs[pairs[:, 0] == token, 1]).max() for token in np.unique(pairs[:, 0])]
    assert 0.7 < sum(followers) / len(pairs) < 0.85
    assert TINY.batches(1, 2)[0]["x"].tolist() == [[2, 5, 3, 1, 6], [6, 4, 0, 2, 5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.pop("y"), r"batch 0 has the fields \['x'\] and no 'y'"),
        (lambda b: b.update(x=b["x"][:, :3]), r"batch 0 x is int32\(4, 3\), not integer labels of shape \(4, 5\)"),
        (lambda b: b.update(y=b["y"][:3]), r"batch 0 y is int32\(3, 5\), not integer labels of shape \(4, 5\)"),
        (lambda b: b.update(x=b["x"] + 7), "labels from 7 to 13, outside 0…6"),
        (lambda b: b.update(x=b["x"][:0], y=b["y"][:0]), "batch 0 is empty"),
    ],
)
def test_batches_that_do_not_fit_are_named(change, message):
    """A field that is missing, of another shape or outside the vocabulary is an error that names both."""
    batch = dict(TINY.batches(1, 4)[0])
    change(batch)
    with pytest.raises(ValueError, match=message):
        TINY.train(TINY.initial_parameters(), [batch])


@pytest.fixture(scope="module")
def first_step():
    """The default truth's start, its first batch, and the gradients with their deviations."""
    truth = GPTTruth(optimizer=Momentum())
    parameters, [batch] = truth.initial_parameters(), truth.batches(1, BATCH)
    flat = {path: exact(leaf) for path, leaf in leaves(parameters)}
    _, gradients = truth.loss_and_gradients(flat, batch)
    value = {path: gradient.value for path, gradient in gradients.items()}
    return parameters, batch, value, {path: np.sqrt(gradient.variance) for path, gradient in gradients.items()}


def in_float32(network, parameters, batch, layout=Layout):
    """The gradients of the JAX model on one device."""
    differentiate = jax.jit(jax.grad(lambda parameters: network.loss(parameters, batch, layout())))
    return {path: np.asarray(leaf) for path, leaf in leaves(differentiate(parameters))}


def test_the_model_in_float32_is_within_the_bound(first_step):
    """Every leaf uses between a fortieth and a third of what is allowed, which is less than 1e-4 of the signal."""
    parameters, batch, value, deviation = first_step
    verdict = judge(in_float32(gpt.GPT(), parameters, batch), value, deviation)
    assert verdict.passed, verdict
    for record in verdict.records:
        assert 1 / 40 < record.margin < 1 / 3, record
        assert record.allowed < 1e-4 * record.signal, record


class LooksAhead(Layout):
    """No causal mask."""

    def attend(self, q, k, v):
        """Every query sees every key."""
        score = jnp.einsum("bthk,bshk->bhts", q, k) / np.sqrt(q.shape[-1])
        return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(score), v)


class ScalesByWidth(Layout):
    """Scores divided by √(H·K) for √K."""

    def attend(self, q, k, v):
        """Too flat."""
        return super().attend(q / np.sqrt(q.shape[-2]), k, v)


class OtherEpsilon(gpt.GPT):
    """PyTorch's 1e-5 for 1e-6."""

    def normalise(self, norm, x):
        """The variance a hair larger."""
        variance = x.var(-1, keepdims=True)
        return super().normalise(norm, x) * jnp.sqrt((variance + 1e-6) / (variance + 1e-5))


class ByErf(gpt.GPT):
    """The exact GELU for the one by tanh."""

    def feed_forward(self, block, x, layout):
        """They differ by less than 5e-4."""
        z = x @ block["linear_1"]["kernel"] + block["linear_1"]["bias"]
        return jax.nn.gelu(z, approximate=False) @ block["linear_2"]["kernel"] + block["linear_2"]["bias"]


class AveragesExamples(gpt.GPT):
    """The mean of a position's loss over examples, and then the sum over positions."""

    def mean_loss(self, logits, y):
        """T times too large."""
        return self.length * super().mean_loss(logits, y)


@pytest.mark.parametrize("fault", [LooksAhead, ScalesByWidth, OtherEpsilon, ByErf, AveragesExamples])
def test_a_slightly_different_model_is_outside_the_bound(first_step, fault):
    """Every leaf is beyond twenty times what is allowed."""
    parameters, batch, value, deviation = first_step
    network, layout = (gpt.GPT, fault) if issubclass(fault, Layout) else (fault, Layout)
    verdict = judge(in_float32(network(), parameters, batch, layout), value, deviation)
    assert all(record.failure == "exceeds" and record.margin > 20 for record in verdict.records), verdict


@pytest.mark.parametrize(("truth", "network"), [(GPTTruth(), gpt.GPT()), (FlaxGPTTruth(), FlaxGPT())])
def test_the_model_and_its_truth_are_comparable(truth, network):
    """Sizes have the same names and defaults, parameters the same paths and shapes."""
    assert truth.parameter_shapes() == dict(leaves(network.shapes))
    assert {field.name: getattr(truth, field.name) for field in fields(network)} == vars(network)
    assert {path: leaf.shape for path, leaf in leaves(network.init(jax.random.key(0)))} == truth.parameter_shapes()


def test_operations_propagate_errors_as_sampling_does():
    """The deviation of each operation's result is the root mean square over 20,000 draws of its operands' errors."""
    rng = np.random.default_rng(0)
    x, g, s = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)) + 2, 1e-4
    xhat, inverse = normalise(exact(x), gpt.EPSILON)
    p = causal_softmax(exact(x))
    for operation, operand in (
        (lambda a: normalise(a, gpt.EPSILON)[0], x),
        (lambda a: normalise(a, gpt.EPSILON)[1], x),
        (lambda a: normalise_backward(a, xhat, inverse), g),
        (gelu, x),
        (lambda a: gelu_backward(exact(g), a), x),
        (causal_softmax, x),
        (lambda a: softmax_backward(a, p), g),
    ):
        drawn = operation(exact(operand + s * rng.normal(size=(20_000, *operand.shape)))).value
        sampled = np.sqrt(((drawn - operation(exact(operand)).value) ** 2).mean(0))
        ours = operation(Rounded(operand, np.full(operand.shape, s**2)))
        np.testing.assert_allclose(np.sqrt(ours.variance), sampled, rtol=0.03, atol=1e-6)


def test_a_looked_up_row_gathers_its_gradients():
    """Rows are summed where they were looked up, one looked up once is not rounded, one never is an exact zero."""
    g = Rounded(np.array([[1.0], [2.0], [4.0]]), np.array([[0.0], [1e-3], [1e-3]]))
    total = scatter_add(g, np.array([2, 0, 0]), 4)
    assert total.value.ravel().tolist() == [6, 0, 1, 0]
    assert total.variance.ravel().tolist() == [pytest.approx(2e-3), 0, 0, 0]
    assert total.variance[0] > 2e-3
