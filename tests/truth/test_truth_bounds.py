"""Is the bound honest and sharp: float32 training in many summation orders stays within it, and faults do not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from meshproof.contract import Step, Trajectory, leaves
from meshproof.measures.numerics import judge
from meshproof.measures.trajectories import judge_trajectory
from reference_impl.truth import Adam, AveragedMomentum, MLPTruth, Momentum

F32 = np.float32
LOSSES = ["softmax_cross_entropy", "mean_squared_error"]
OPTIMIZERS = [Momentum(), AveragedMomentum(), Adam()]


def blas(a, b):
    """As the library has it."""
    return a @ b


def shuffled(a, b, seed):
    """The terms of every sum in another random order."""
    order = np.random.default_rng(seed).permutation(a.shape[-1])
    return a[:, order] @ b[order]


def split(a, b, parts):
    """Partial sums, as over devices, added one after another."""
    pieces = zip(np.array_split(a, parts, 1), np.array_split(b, parts, 0), strict=True)
    return sum((left @ right for left, right in pieces), F32(0))


def sequential(a, b, step=1):
    """One term after another, each partial sum rounded: the order with the largest error."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for k in range(a.shape[1])[::step]:
        total += np.multiply.outer(a[:, k], b[k])
    return total


ORDERS = {
    "blas": blas,
    **{f"shuffled {seed}": partial(shuffled, seed=seed) for seed in range(12)},
    **{f"split {parts}": partial(split, parts=parts) for parts in (2, 3, 4, 8)},
    "sequential": sequential,
    "reversed": partial(sequential, step=-1),
}


def same(gradients):
    """No fault."""
    return gradients


def bf16(array):
    """Rounded to bfloat16, to nearest even, and held in float32."""
    bits = np.ascontiguousarray(array, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(F32)


def gradients_in_float32(parameters, batch, loss, matmul):
    """The loss and the gradients of an MLP, written anew for float32 arrays."""
    depth, h = len(parameters) // 2, [batch["x"]]
    for i in range(depth):
        z = matmul(h[-1], parameters[f"dense_{i}/kernel"]) + parameters[f"dense_{i}/bias"]
        h.append(np.maximum(z, 0) if i < depth - 1 else z)
    ones, y = np.ones((1, len(z)), F32), batch["y"]
    if loss == "softmax_cross_entropy":
        shifted = z - z.max(1, keepdims=True)
        e = np.exp(shifted)
        total = matmul(e, np.ones((e.shape[1], 1), F32))
        value = matmul(ones, (np.log(total) - shifted[np.arange(len(y)), y][:, None])) / F32(len(y))
        d = (e / total - np.eye(z.shape[1], dtype=F32)[y]) / F32(len(y))
    else:
        difference = (z - y).reshape(1, -1)
        value = matmul(difference * difference, np.ones((difference.size, 1), F32)) / F32(y.size)
        d = F32(2) * (z - y) / F32(y.size)
    gradients = {}
    for i in reversed(range(depth)):
        gradients[f"dense_{i}/kernel"] = matmul(np.ascontiguousarray(h[i].T), d)
        gradients[f"dense_{i}/bias"] = matmul(ones, d)[0]
        d = matmul(d, np.ascontiguousarray(parameters[f"dense_{i}/kernel"].T)) * (h[i] > 0)
    return float(value.item()), {path: gradients[path] for path in parameters}


def step_in_float32(o, parameters, state, gradients, count):
    """One optimizer step in float32; every constant is a float32, as in a compiled program."""
    lr, p, s = F32(o.learning_rate), {}, {}
    for path, g in gradients.items():
        if isinstance(o, Adam):
            mu = F32(o.b1) * state.get(f"mu/{path}", F32(0)) + F32(1 - o.b1) * g
            nu = F32(o.b2) * state.get(f"nu/{path}", F32(0)) + F32(1 - o.b2) * (g * g)
            first, second = F32(1) - F32(o.b1) ** F32(count), F32(1) - F32(o.b2) ** F32(count)
            p[path] = parameters[path] - lr * ((mu / first) / (np.sqrt(nu / second) + F32(o.eps)))
            s |= {f"mu/{path}": mu, f"nu/{path}": nu, "count": np.int32(count)}
        else:
            g = g * F32(1 - o.decay) if isinstance(o, AveragedMomentum) else g
            s[f"momentum/{path}"] = g + F32(o.decay) * state.get(f"momentum/{path}", F32(0))
            p[path] = parameters[path] - lr * s[f"momentum/{path}"]
    return p, s


def train_in_float32(truth, tree, batches, matmul=blas, fault=same):
    """The same training as the truth's, in float32, with a planted fault between the gradients and the optimizer."""
    parameters, state, steps, first = dict(leaves(tree)), {}, [], {}
    for count, batch in enumerate(batches, 1):
        loss, gradients = gradients_in_float32(parameters, batch, truth.loss, matmul)
        gradients = fault(gradients)
        first = first or gradients
        parameters, state = step_in_float32(truth.optimizer, parameters, state, gradients, count)
        steps.append(Step(loss, parameters, state))
    return Trajectory(first, tuple(steps))


@pytest.fixture(scope="module")
def cases():
    """Each truth, its start, its batches and its reference, computed once."""
    made = {}
    for loss in LOSSES:
        for optimizer in OPTIMIZERS:
            truth = MLPTruth(loss=loss, optimizer=optimizer)
            parameters, batches = truth.initial_parameters(), truth.batches(3, 64)
            made[loss, type(optimizer)] = truth, parameters, batches, truth.train(parameters, batches)
    return made


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_float32_training_in_any_order_of_summation_stays_within_the_bound(cases, loss, order):
    """Three steps, every leaf, every optimizer: a third of what is allowed is never reached, in whatever order."""
    for optimizer in OPTIMIZERS if order in ("blas", "split 8") else OPTIMIZERS[:1]:
        truth, parameters, batches, reference = cases[loss, type(optimizer)]
        observed = train_in_float32(truth, parameters, batches, ORDERS[order])
        for verdict in judge_trajectory(observed, reference):
            assert verdict.passed, f"{type(optimizer).__name__}, {order}: {verdict}"
            assert verdict.margin < 1 / 3, f"{type(optimizer).__name__}, {order}: {verdict}"


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bound_is_not_vacuous(cases, loss):
    """What is allowed of a gradient or a momentum is below 1e-5 of it; Adam's moments have 1e-4, parameters 1e-5."""
    for (case, optimizer), (_, _, _, reference) in cases.items():
        if case != loss:
            continue
        value, rounding = reference.value, reference.rounding
        for record in judge(value.gradients, value.gradients, rounding.gradients).records:
            assert record.allowed < 1e-5 * record.signal, record
        for true, by in zip(value.steps, rounding.steps, strict=True):
            state = judge(true.optimizer_state, true.optimizer_state, by.optimizer_state).records
            limit = 1e-4 if optimizer is Adam else 1e-5
            assert all(record.allowed <= limit * record.signal for record in state), state
            after = judge(true.parameters, true.parameters, by.parameters).records
            assert all(record.allowed < 1e-5 * record.signal for record in after), after


@pytest.mark.parametrize("order", ["sequential", "reversed"])
def test_an_honest_run_uses_a_fair_part_of_the_bound(cases, order):
    """The worst order's margins are not absurdly small: some leaf of each part uses a twentieth of what is allowed."""
    truth, parameters, batches, reference = cases["softmax_cross_entropy", Momentum]
    observed = train_in_float32(truth, parameters, batches, ORDERS[order])
    for verdict in judge_trajectory(observed, reference):
        if not verdict.part.startswith("loss"):
            assert verdict.margin > 0.05, verdict


def by_leaf(change):
    """A fault of one leaf at a time."""
    return lambda gradients, path: {**gradients, path: change(gradients[path])}


LEAF_FAULTS = {
    "rounded to bfloat16": by_leaf(bf16),
    "scaled by 1 + 1e-4": by_leaf(lambda g: g * F32(1 + 1e-4)),
    "scaled by 1 - 1e-4": by_leaf(lambda g: g * F32(1 - 1e-4)),
    "one row rolled": by_leaf(
        lambda g: np.concatenate([np.roll(g[:1], 1, -1), g[1:]]) if g.ndim > 1 else np.roll(g, 1)
    ),
    "sum for mean over 8 devices": by_leaf(lambda g: g * F32(8)),
    "one element lost": by_leaf(
        lambda g: np.where(np.arange(g.size).reshape(g.shape) == np.abs(g).argmax(), F32(0), g)
    ),
    "all zeros": by_leaf(np.zeros_like),
}


@pytest.mark.parametrize("fault", LEAF_FAULTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_fault_of_one_leaf_is_caught_and_named(cases, loss, fault):
    """Whichever leaf it befalls, gradients and first momentum fail there and nowhere else, at five times the bound."""
    truth, parameters, batches, reference = cases[loss, Momentum]
    for path in reference.value.gradients:
        observed = train_in_float32(truth, parameters, batches[:1], fault=partial(LEAF_FAULTS[fault], path=path))
        state = reference.value.steps[0].optimizer_state, reference.rounding.steps[0].optimizer_state
        for verdict in (
            judge(observed.gradients, reference.value.gradients, reference.rounding.gradients, "gradients"),
            judge(observed.steps[0].optimizer_state, *state, "momentum"),
        ):
            assert [record.path.removeprefix("momentum/") for record in verdict.failures] == [path], verdict
            assert verdict.margin > 5, verdict


def shard_gradients(truth, parameters, batch, matmul=blas):
    """The gradients of each of eight devices' part of the batch."""
    for x, y in zip(np.split(batch["x"], 8), np.split(batch["y"], 8), strict=True):
        yield gradients_in_float32(parameters, {"x": x, "y": y}, truth.loss, matmul)[1]


def lost_reduction(truth, parameters, batch):
    """Each device keeps its own gradient."""
    return next(shard_gradients(truth, parameters, batch))


def bf16_partial_sums(truth, parameters, batch):
    """An all-reduce in bfloat16."""
    total = None
    for gradients in shard_gradients(truth, parameters, batch):
        parts = {path: bf16(g) for path, g in gradients.items()}
        total = parts if total is None else {path: bf16(total[path] + g) for path, g in parts.items()}
    return {path: g / F32(8) for path, g in total.items()}


def bf16_matmuls(truth, parameters, batch):
    """Matrix products of bfloat16 inputs with float32 sums, as an accelerator has them by default."""
    return gradients_in_float32(parameters, batch, truth.loss, lambda a, b: bf16(a) @ bf16(b))[1]


@pytest.mark.parametrize("fault", [lost_reduction, bf16_partial_sums, bf16_matmuls], ids=lambda f: f.__name__)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_fault_of_the_whole_step_is_caught_in_every_leaf(cases, loss, fault):
    """No leaf hides it: every one is beyond ten times its bound."""
    truth, parameters, batches, reference = cases[loss, Momentum]
    observed = fault(truth, dict(leaves(parameters)), batches[0])
    verdict = judge(observed, reference.value.gradients, reference.rounding.gradients)
    assert all(record.failure == "exceeds" and record.margin > 10 for record in verdict.records), verdict


def test_a_pre_activation_at_zero_widens_the_bound_to_hold_a_flip_and_says_so():
    """Orders that round z to either side of 0 differ by a whole gradient: all are within the now vacuous bound."""
    truth = MLPTruth((64, 8, 4), seed=1)
    tree = {
        layer: {name: leaf.copy() for name, leaf in leafs.items()}
        for layer, leafs in truth.initial_parameters().items()
    }
    batch = truth.batches(1, 4)[0]
    tree["dense_0"]["bias"][0] = -F32(batch["x"][0].astype(np.float64) @ tree["dense_0"]["kernel"][:, 0])
    reference = truth.train(tree, [batch])
    flips = set()
    for matmul in ORDERS.values():
        observed = train_in_float32(truth, tree, [batch], matmul)
        verdict = judge(observed.gradients, reference.value.gradients, reference.rounding.gradients)
        assert max(record.margin for record in verdict.records) < 1
        assert [record.failure for record in verdict.records[:2]] == ["vacuous"] * 2
        assert "a ReLU is so near 0 that it may flip" in str(verdict)
        flips.add(verdict.records[0].relative > 1e-3)
    assert flips == {True, False}


def test_adam_holds_where_gradients_are_zero_or_tiny():
    """A dead input's row has a zero gradient, others are 1e-12 or underflow when squared: all are judged."""
    truth = MLPTruth((16, 32, 4), optimizer=Adam(), seed=2)
    tree, scale = truth.initial_parameters(), np.ones(16, F32)
    scale[:4] = [0, 1e-12, 1e-20, 1e-30]
    batches = [{"x": batch["x"] * scale, "y": batch["y"]} for batch in truth.batches(4, 8)]
    reference = truth.train(tree, batches)
    for verdict in judge_trajectory(train_in_float32(truth, tree, batches), reference):
        assert verdict.passed, verdict
    last, by = reference.value.steps[-1], reference.rounding.steps[-1]
    assert np.array_equal(last.parameters["dense_0/kernel"][0], tree["dense_0"]["kernel"][0])
    assert not last.optimizer_state["nu/dense_0/kernel"][0].any()
    assert not by.optimizer_state["mu/dense_0/kernel"][0].any()
    assert all(np.isfinite(deviation).all() for deviation in [*by.parameters.values(), *by.optimizer_state.values()])
