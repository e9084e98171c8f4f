"""Is the truth true: gradients against finite differences, optimizers against optax, data, inputs, rounding rules."""

from __future__ import annotations

from itertools import permutations
from math import fsum

import numpy as np
import pytest

from meshproof.contract import leaves
from reference_impl.truth import Adam, AveragedMomentum, MLPTruth, Momentum
from reference_impl.truth.mlp import LOSSES
from reference_impl.truth.rounding import ROUNDING, Rounded, accumulation, chance_positive, exact, gate, relu, softmax
from tests.truth.finite_differences import check_gradients

OPTIMIZERS = [Momentum(), AveragedMomentum(), Adam()]
SMALL = (5, 7, 6, 4)


@pytest.mark.parametrize("loss", LOSSES)
def test_hand_written_gradients_are_the_finite_differences_of_the_loss(loss):
    """Every element of every leaf's gradient equals the central difference of the loss in float64, to 1e-7."""
    truth = MLPTruth(SMALL, loss, seed=3)
    check_gradients(truth, truth.batches(1, 6)[0])


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: type(optimizer).__name__)
def test_optimizers_are_those_of_optax_in_float64(optimizer):
    """Five steps of each optimizer give optax's parameters and state in float64, to 1e-12."""
    import jax
    import optax

    rng = np.random.default_rng(0)
    start = {"w": rng.normal(size=(3, 4)), "b": rng.normal(size=4)}
    gradients = [{path: rng.normal(size=value.shape) for path, value in start.items()} for _ in range(5)]
    transform = {
        Momentum: lambda o: optax.sgd(o.learning_rate, momentum=o.decay),
        AveragedMomentum: lambda o: optax.chain(optax.ema(o.decay, debias=False), optax.scale(-o.learning_rate)),
        Adam: lambda o: optax.adam(o.learning_rate, o.b1, o.b2, o.eps),
    }[type(optimizer)](optimizer)
    names = {Momentum: {"trace": "momentum"}, AveragedMomentum: {"ema": "momentum"}, Adam: {"mu": "mu", "nu": "nu"}}
    ours = {path: exact(value) for path, value in start.items()}
    state = optimizer.init(ours)
    with jax.enable_x64(True):
        theirs = jax.tree.map(jax.numpy.asarray, start)
        their_state = transform.init(theirs)
        for gradient in gradients:
            ours, state = optimizer.update(ours, state, {path: exact(g) for path, g in gradient.items()})
            updates, their_state = transform.update(jax.tree.map(jax.numpy.asarray, gradient), their_state, theirs)
            theirs = optax.apply_updates(theirs, updates)
        for path in start:
            np.testing.assert_allclose(ours[path].value, theirs[path], rtol=1e-12)
            for their_name, name in names[type(optimizer)].items():
                there = optax.tree_utils.tree_get(their_state, their_name)[path]
                np.testing.assert_allclose(state[f"{name}/{path}"].value, there, rtol=1e-12)
        if isinstance(optimizer, Adam):
            assert state["count"].value == optax.tree_utils.tree_get(their_state, "count") == 5


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: type(optimizer).__name__)
def test_five_steps_of_the_default_case_lower_the_loss(optimizer, loss):
    """The data can be learnt: five steps take at least a fifth off the loss, and nothing explodes on the way."""
    truth = MLPTruth(loss=loss, optimizer=optimizer)
    losses = [step.loss for step in truth.train(truth.initial_parameters(), truth.batches(5, 64)).value.steps]
    assert losses[-1] < 0.8 * losses[0]
    assert max(losses) < 1.3 * losses[0]


def test_a_reference_has_canonical_leaves_only():
    """State leaves are momentum/<path>, or mu, nu and an int32 count; values and deviations have the same leaves."""
    for optimizer, names in ((Momentum(), ["momentum"]), (Adam(), ["mu", "nu"])):
        truth = MLPTruth(SMALL, optimizer=optimizer)
        reference = truth.train(truth.initial_parameters(), truth.batches(2, 4))
        paths = [path for path, _ in leaves(truth.initial_parameters())]
        for part in (reference.value, reference.rounding):
            assert list(part.gradients) == paths == list(part.steps[-1].parameters)
            state = {f"{name}/{path}" for name in names for path in paths}
            assert set(part.steps[-1].optimizer_state) - {"count"} == state
    assert reference.value.steps[-1].optimizer_state["count"] == 2
    assert reference.value.steps[-1].optimizer_state["count"].dtype == np.int32
    assert reference.rounding.steps[-1].optimizer_state["count"] == 0


def test_start_values_and_batches_are_these_bits():
    """Data depends on the seed, the path and nothing else: these sums are exact and the same on every NumPy."""
    parameters = dict(leaves(MLPTruth(SMALL, seed=1).initial_parameters()))
    more = dict(leaves(MLPTruth((*SMALL, 3), seed=1).initial_parameters()))
    assert all(np.array_equal(parameters[path], more[path]) for path in parameters)
    batch = MLPTruth(SMALL, seed=1).batches(2, 8)[1]
    assert batch["y"].tolist() == [3, 1, 1, 2, 2, 3, 3, 3]
    assert fsum(batch["x"].ravel()) == -1.9099180437624454
    assert fsum(parameters["dense_0/kernel"].ravel()) == -0.9767005778849125
    assert parameters["dense_0/kernel"].dtype == batch["x"].dtype == np.float32


def test_start_values_have_the_promised_scale():
    """Kernels have variance 2/fan-in, biases are small and none is zero, and draws are within ±3.5 deviations."""
    parameters = dict(leaves(MLPTruth((784, 128, 10)).initial_parameters()))
    kernel = parameters["dense_0/kernel"] / np.sqrt(2 / 784)
    assert abs(kernel.mean()) < 0.01
    assert kernel.std() == pytest.approx(1, abs=0.01)
    assert np.abs(kernel).max() < 3.5
    assert parameters["dense_0/bias"].all()
    assert parameters["dense_0/bias"].std() == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, b: p.pop("dense_1"), r"missing \['dense_1/bias', 'dense_1/kernel'\]"),
        (lambda p, b: p.update(extra=np.zeros(1, np.float32)), r"unexpected \['extra'\]"),
        (
            lambda p, b: p["dense_0"].update(bias=np.zeros(6, np.float32)),
            r"dense_0/bias has shape \(6,\), expected \(7,\)",
        ),
        (lambda p, b: p["dense_0"].update(bias=np.zeros(7)), "dense_0/bias is float64, expected float32"),
        (lambda p, b: b.pop("y"), r"batch 0 has the fields \['x'\] and no 'y'"),
        (lambda p, b: b.update(x=b["x"][:, :3]), r"batch 0 x has shape \(4, 3\), expected \(4, 5\)"),
        (lambda p, b: b.update(x=b["x"][:0], y=b["y"][:0]), "batch 0 is empty"),
        (lambda p, b: b.update(y=b["y"][:3]), r"batch 0 y is int32\(3,\), not integer labels of shape \(4,\)"),
        (lambda p, b: b.update(y=b["y"] + 4), "labels from 5 to 7, outside 0…3"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change, message):
    """A leaf or field that is missing, unexpected, of another shape or dtype is an error that names what and both."""
    truth = MLPTruth(SMALL)
    parameters = {layer: dict(leaf) for layer, leaf in truth.initial_parameters().items()}
    batch = dict(truth.batches(1, 4)[0])
    change(parameters, batch)
    with pytest.raises(ValueError, match=message):
        truth.train(parameters, [batch])


def test_no_batches_or_a_strange_loss_are_errors():
    """Nothing to train on, an unknown loss, and widths that are no network are errors where they are made."""
    with pytest.raises(ValueError, match="no batches"):
        MLPTruth(SMALL).train(MLPTruth(SMALL).initial_parameters(), [])
    with pytest.raises(ValueError, match="'hinge' is none of"):
        MLPTruth(SMALL, loss="hinge")
    with pytest.raises(ValueError, match=r"widths \(5,\)"):
        MLPTruth((5,))


def test_the_variance_of_a_sum_is_that_of_a_random_order():
    """The formula is the mean over all orders of the squared partial sums, times the variance of one rounding."""
    terms = np.array([1.5, -2.0, 0.25, 3.0, -0.5, 1.0])
    partial_sums = np.array([np.cumsum(order)[1:] for order in permutations(terms)])
    mean = (partial_sums**2).sum(1).mean()
    formula = accumulation(np.asarray(terms.sum()), np.asarray((terms**2).sum()), len(terms))
    assert float(formula) == pytest.approx(ROUNDING * mean, rel=1e-12)


@pytest.mark.parametrize(("total", "excess"), [(0.0, 8 / 7), (0.3, 1), (1.0, 1), (10.0, 1)])
def test_no_tree_of_additions_has_a_larger_variance_than_the_sequential_one(total, excess):
    """Pairwise, blocked or over devices, up to 64 terms: only where they cancel is another tree worse, by a seventh."""
    for terms in (3, 4, 8, 17, 64):
        size = np.arange(terms + 1)
        node = size * (terms - size) / (terms * (terms - 1)) + size * (size - 1) / (terms * (terms - 1)) * total
        worst = np.zeros(terms + 1)
        for m in range(2, terms + 1):
            worst[m] = node[m] + max(worst[left] + worst[m - left] for left in range(1, m))
        formula = accumulation(np.asarray(np.sqrt(total)), np.asarray(1.0), terms)
        assert ROUNDING * worst[terms] <= float(formula) * excess * (1 + 1e-12)


def test_operations_propagate_errors_as_sampling_does():
    """The deviation of each operation's result is the root mean square over 20,000 draws of its operands' errors."""
    rng = np.random.default_rng(0)
    a, b, s = rng.normal(size=(2, 3)), rng.normal(size=(3, 4)) + 3, 1e-4

    def sampled(operation, *operands):
        draws = [value + s * rng.normal(size=(20_000, *value.shape)) for value in operands]
        errors = operation(*draws) - operation(*operands)
        return np.sqrt((errors**2).mean(0))

    def soft(z):
        e = np.exp(z - z.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def noisy(value):
        return Rounded(value, np.full(value.shape, s**2))

    pairs = [
        (noisy(a) @ noisy(b), sampled(np.matmul, a, b)),
        (noisy(b) * noisy(b + 1), sampled(np.multiply, b, b + 1)),
        (noisy(b) / noisy(b + 1), sampled(np.divide, b, b + 1)),
        (noisy(b) - noisy(a[:, :1].sum() + b), sampled(np.subtract, b, a[:, :1].sum() + b)),
        (noisy(b).sum(1), sampled(lambda x: x.sum(-1), b)),
        (noisy(b).square(), sampled(np.square, b)),
        (noisy(b).sqrt(), sampled(np.sqrt, b)),
        (softmax(noisy(a)), sampled(soft, a)),
    ]
    for ours, drawn in pairs:
        np.testing.assert_allclose(np.sqrt(ours.variance), drawn, rtol=0.03)


def test_a_relu_that_may_flip_holds_the_whole_gradient():
    """At z = 0 with an error the gradient's variance is g²/2; ten deviations away it is 0; an exact 0 is closed."""
    z = Rounded(np.array([0.0, 1e-3, -1e-3, 0.0, 1e-4]), np.array([1e-8, 1e-8, 1e-8, 0.0, 1e-8]))
    gradient = gate(exact(np.full(5, 2.0)), z)
    assert gradient.value.tolist() == [0, 2, 0, 0, 2]
    np.testing.assert_allclose(gradient.variance, [2, 0, 0, 0, 4 * 0.1586553], rtol=1e-6)
    assert chance_positive(z)[3] == 0
    assert relu(z).variance[1:4].tolist() == [1e-8, 0, 0]


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_adams_bound_holds_where_the_gradient_is_as_small_as_its_error(steps):
    """From g = 0 to a million deviations, the direction errs by no more than its deviation, nor by more than it can."""
    adam, rng, error = Adam(), np.random.default_rng(1), 1e-6
    size = error * np.array([0.0, 1e-3, 0.1, 0.5, 1, 2, 3, 5, 10, 100, 1e4, 1e6])
    gradients = [size * rng.choice([0.5, 1, 2], size.shape) for _ in range(steps)]

    def directions(noise):
        state = adam.init({"g": exact(size)})
        for g, e in zip(gradients, noise, strict=True):
            p, state = adam.update({"g": exact(np.zeros_like(size))}, state, {"g": Rounded(g + e, size * 0 + error**2)})
        return p["g"]

    truth = directions(np.zeros((steps, 1)))
    seen = [directions(error * rng.normal(size=(steps, size.size))).value - truth.value for _ in range(400)]
    observed, allowed = np.sqrt(np.mean(np.square(seen), 0)), np.sqrt(truth.variance)
    assert (observed <= 1.5 * allowed).all()
    assert (allowed <= 2.1 * adam.learning_rate).all()
    assert allowed[-1] < 1e-4 * adam.learning_rate
