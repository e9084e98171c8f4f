"""Is the truth of the mixture true, honest and sharp: its gradients, its bound, the faults that the bound is for."""

from __future__ import annotations

from math import fsum

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshproof.contract import Step, Trajectory, leaves, nest
from meshproof.measures.numerics import judge
from meshproof.measures.trajectories import judge_trajectory
from reference_impl.models.layout import Layout
from reference_impl.models.moe import MoE
from reference_impl.truth import MoETruth, Momentum
from reference_impl.truth.moe import route
from reference_impl.truth.rounding import exact, softmax
from tests.truth.finite_differences import check_gradients

pytestmark = pytest.mark.any_stack

F32 = np.float32
STEPS, BATCH = 3, 64
TINY = {"features": 5, "width": 4, "experts": 4, "hidden": 6, "classes": 3, "group": 4, "seed": 3}


def routing(truth, parameters, batch):
    """Who goes where, in float64."""
    h_BxM = batch["x"].astype(np.float64) @ parameters["input/kernel"] + parameters["input/bias"]
    p_BxE = softmax(exact(h_BxM @ parameters["router/kernel"]))
    return route(p_BxE, truth.choices, truth.group, truth.capacity)


def seats_taken(truth, parameters, batch):
    """How many of its choices each token has a place with."""
    return routing(truth, parameters, batch).seats.sum(-1).ravel()


def gradients_by(model, compiled=lambda function: function):
    """The loss and the flat gradients of a model in JAX, in float32."""
    compute = compiled(jax.value_and_grad(lambda parameters, batch: model.loss(parameters, batch, Layout())))

    def of(parameters, batch):
        loss, tree = compute(nest(parameters), batch)
        found = dict(leaves(tree))
        return float(loss), {path: np.asarray(found[path]) for path in parameters}

    return of


def by_group(model):
    """The same from each group alone, and their mean, as devices have it that hold one group each."""
    alone = gradients_by(model, jax.jit)

    def of(parameters, batch):
        parts = [{field: value[i : i + model.group] for field, value in batch.items()} for i in range(0, BATCH, 8)]
        losses, gradients = zip(*(alone(parameters, part) for part in parts), strict=True)
        return fsum(losses) / 8, {path: sum(g[path] for g in gradients) / F32(8) for path in parameters}

    return of


def train(truth, tree, batches, gradients_of):
    """SGD with momentum in float32."""
    parameters, steps, first = dict(leaves(tree)), [], {}
    momentum = {path: np.zeros_like(value) for path, value in parameters.items()}
    for batch in batches:
        loss, gradients = gradients_of(parameters, batch)
        first = first or gradients
        momentum = {path: F32(truth.optimizer.decay) * momentum[path] + g for path, g in gradients.items()}
        parameters = {path: w - F32(truth.optimizer.learning_rate) * momentum[path] for path, w in parameters.items()}
        steps.append(Step(loss, parameters, {f"momentum/{path}": m for path, m in momentum.items()}))
    return Trajectory(first, tuple(steps))


@pytest.fixture(scope="module")
def default():
    """The default model with its truth, start, batches and reference."""
    truth = MoE().truth(Momentum())
    start, batches = truth.initial_parameters(), truth.batches(STEPS, BATCH)
    return truth, start, batches, truth.train(start, batches)


@pytest.mark.parametrize(("choices", "capacity"), [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_hand_written_gradients_are_the_finite_differences_of_the_loss(choices, capacity):
    """Every element of every leaf's gradient equals the central difference in float64, through the gates and where
    tokens are dropped."""
    truth = MoETruth(**TINY, choices=choices, capacity=capacity)
    parameters = {path: leaf.astype(np.float64) for path, leaf in leaves(truth.initial_parameters())}
    batch = truth.batches(1, 8)[0]
    assert (seats_taken(truth, parameters, batch).sum() < 8 * choices) == (capacity < 4)
    check_gradients(truth, batch)


def test_tokens_are_really_dropped_at_every_step(default):
    """In the default data experts turn tokens away at every step, some tokens find no expert at all, none is idle."""
    truth, start, batches, reference = default
    parameters = [dict(leaves(start)), *(step.parameters for step in reference.value.steps)]
    for before, batch in zip(parameters, batches, strict=False):
        routed = routing(truth, before, batch)
        taken_B = routed.seats.sum(-1).ravel()
        assert BATCH * truth.choices - taken_B.sum() >= 16
        assert (taken_B == 0).sum() >= 1
        assert routed.seats.reshape(BATCH, truth.experts, -1).sum((0, 2)).min() >= 1


def test_a_late_token_is_dropped_and_keeps_its_residual():
    """Of a group's tokens that all choose one expert the first P have its places, in order; in the next group too."""
    p_BxE = np.tile([0.6, 0.3, 0.1], (8, 1))
    routed = route(softmax(exact(np.log(p_BxE))), choices=1, group=4, capacity=2)
    expected_SxQ = np.zeros((4, 6))
    expected_SxQ[0, 0] = expected_SxQ[1, 1] = 1
    assert np.array_equal(routed.seats, [expected_SxQ, expected_SxQ])
    assert routed.chosen.tolist() == [[1, 0, 0]] * 8


@pytest.mark.parametrize("order", [gradients_by, by_group], ids=lambda order: order.__name__)
def test_float32_training_stays_within_the_bound(default, order):
    """Three steps of JAX in float32, whole or group by group: a third of what is allowed is never reached."""
    truth, start, batches, reference = default
    for verdict in judge_trajectory(train(truth, start, batches, order(MoE())), reference):
        assert verdict.passed, verdict
        assert verdict.margin < 1 / 3, verdict


def test_the_bound_is_not_vacuous(default):
    """What is allowed of any leaf in three steps is below 1e-4 of it."""
    _, _, _, reference = default
    records = [record for verdict in judge_trajectory(reference.value, reference) for record in verdict.records]
    assert max(record.allowed / record.signal for record in records) < 1e-4


def test_five_steps_lower_the_loss():
    """The data can be learnt: five steps take a fifth off the loss, and nothing explodes on the way."""
    truth = MoETruth()
    losses = [step.loss for step in truth.train(truth.initial_parameters(), truth.batches(5, BATCH)).value.steps]
    assert losses[-1] < 0.8 * losses[0]
    assert max(losses) < 1.3 * losses[0]


class Unnormalised(MoE):
    """Gates that do not sum to one."""

    def route(self, scores_GxSxE):
        """The router's p as it is."""
        gates_GxSxE, seats_GxSxExP = super().route(scores_GxSxE)
        return jax.nn.softmax(scores_GxSxE) * (gates_GxSxE > 0), seats_GxSxExP


class RenormalisedLate(MoE):
    """Gates that sum to one over the experts that kept the token."""

    def route(self, scores_GxSxE):
        """Divided again, by what is left."""
        gates_GxSxE, seats_GxSxExP = super().route(scores_GxSxE)
        kept_GxSxE = gates_GxSxE * seats_GxSxExP.sum(-1)
        return kept_GxSxE / jnp.maximum(kept_GxSxE.sum(-1, keepdims=True), 1e-9), seats_GxSxExP


class LastComeFirst(MoE):
    """The places go to the last tokens of a group."""

    def route(self, scores_GxSxE):
        """Routed in reverse."""
        return tuple(x[:, ::-1] for x in super().route(scores_GxSxE[:, ::-1]))


FAULTS = {
    "capacity ignored": MoE(capacity_factor=4.0),
    "capacity of the whole batch": MoE(group=BATCH),
    "top 1": MoE(choices=1, capacity_factor=2.0),
    "gates not renormalised": Unnormalised(),
    "gates renormalised after dropping": RenormalisedLate(),
    "places to the last": LastComeFirst(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_routing_is_caught_in_every_leaf(default, fault):
    """No leaf's gradient hides it: every one is beyond a thousand times its bound."""
    _, start, batches, reference = default
    _, observed = gradients_by(FAULTS[fault])(dict(leaves(start)), batches[0])
    verdict = judge(observed, reference.value.gradients, reference.rounding.gradients)
    assert all(record.failure == "exceeds" and record.margin > 1000 for record in verdict.records), verdict


def test_a_tie_widens_the_bound_to_hold_a_flip_and_says_so(default):
    """Where two experts are equally good for a token, float32 may take either: both are within the vacuous bound."""
    truth, start, batches, _ = default
    flat = dict(leaves(start))
    h_M = batches[0]["x"][0] @ flat["input/kernel"] + flat["input/bias"]
    second, third = np.argsort(h_M @ flat["router/kernel"])[[-2, -3]]
    kernel = flat["router/kernel"].copy()
    kernel[:, third] = kernel[:, second]
    reference = truth.train(nest(flat | {"router/kernel": kernel}), batches[:1])
    favoured = []
    for one in (second, third):
        tilted_MxE = kernel.copy()
        tilted_MxE[:, one] += F32(1e-7) * h_M
        loss, observed = gradients_by(MoE())(flat | {"router/kernel": tilted_MxE}, batches[0])
        verdict = judge(observed, reference.value.gradients, reference.rounding.gradients)
        assert {record.failure for record in verdict.records} == {"vacuous"}
        assert max(record.margin for record in verdict.records) < 1
        assert "two choices tie" in str(verdict)
        favoured.append(loss)
    assert abs(favoured[0] - favoured[1]) > 1e-3


def test_tokens_that_are_no_whole_groups_are_refused():
    """The truth names the tokens and the size of a group; so does the model."""
    truth = MoETruth()
    message = "60 tokens are not divisible by groups of 8"
    [batch] = truth.batches(1, 60)
    with pytest.raises(ValueError, match=message):
        truth.train(truth.initial_parameters(), [batch])
    with pytest.raises(ValueError, match=message):
        MoE().loss(truth.initial_parameters(), batch, Layout())
