"""An MLP trained in few digits, by hand: what is kept is rounded, and what is multiplied."""

import numpy as np

from meshproof.contract import Step, Trajectory, leaves
from meshproof.measures.numerics import VACUOUS_IN
from meshproof.measures.trajectories import judge_trajectory

F32 = np.float32


def once(terms, keep):
    """A sum in float32, rounded at the end."""
    return keep(terms.sum(0))


def always(terms, keep):
    """A sum of which every partial sum is rounded."""
    total = terms[0]
    for term in terms[1:]:
        total = keep(total + term)
    return total


def loss_and_gradients(parameters, batch, keep, add, product):
    """The MLP written anew: what is kept between operations is rounded, what is a loss is float32."""
    depth = len(parameters) // 2
    used, h = {path: keep(value) for path, value in parameters.items()}, [keep(batch["x"])]
    for i in range(depth):
        z = keep(keep(product(h[-1], used[f"dense_{i}/kernel"])) + used[f"dense_{i}/bias"])
        h.append(np.maximum(z, 0) if i < depth - 1 else z)
    logits, rows = h.pop(), np.arange(len(batch["y"]))
    exponential = np.exp(logits - logits.max(1, keepdims=True))
    p = exponential / exponential.sum(1, keepdims=True)
    loss = -np.log(p[rows, batch["y"]]).mean()
    p[rows, batch["y"]] -= 1
    dz, gradients = keep(p / F32(len(rows))), {}
    for i in reversed(range(depth)):
        gradients |= {f"dense_{i}/kernel": keep(product(h[i].T, dz)), f"dense_{i}/bias": add(dz, keep)}
        dz = keep(product(dz, used[f"dense_{i}/kernel"].T)) * (h[i] > 0) if i else None
    return loss, gradients


def trained(truth, keep=lambda value: value, add=once, product=np.matmul):
    """A truth's verdicts on three steps of SGD with momentum on float32 parameters."""
    parameters = dict(leaves(truth.initial_parameters()))
    batches = truth.batches(3, 64)
    momentum, steps, first = dict.fromkeys(parameters, F32(0)), [], None
    for batch in batches:
        loss, gradients = loss_and_gradients(parameters, batch, keep, add, product)
        first = first or gradients
        momentum = {path: F32(truth.optimizer.decay) * momentum[path] + gradients[path] for path in parameters}
        parameters = {p: value - F32(truth.optimizer.learning_rate) * momentum[p] for p, value in parameters.items()}
        steps.append(Step(loss, parameters, {f"momentum/{path}": value for path, value in momentum.items()}))
    reference = truth.train(truth.initial_parameters(), batches)
    return judge_trajectory(Trajectory(first, tuple(steps)), reference, VACUOUS_IN[truth.compute])
