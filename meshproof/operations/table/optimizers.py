"""What optax makes of gradients, by the papers' formulas in NumPy: four steps, of two parameters.

An operand is the parameters and the gradients of the steps, one after the other; a result, the parameters after each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from meshproof.operations import Operand, Operation, normal

ROWS = 3
"""Of the first parameter, of eight; the others are the second's."""

RATE = 0.1

Memory = dict[str, Any]
Update = Callable[[int, np.ndarray, np.ndarray, Memory], Any]
"""What is added to the parameters in the step of a number, from 0, by their gradients, themselves and what is kept."""


def stepped(transformation: Callable[[], Any]) -> Callable[[Any], Any]:
    """The parameters after each step, by optax."""

    def run(stack: Any) -> Any:
        optimizer = transformation()
        parameters = halves(stack[0])
        state, found = optimizer.init(parameters), []
        for gradients in stack[1:]:
            updates, state = optimizer.update(halves(gradients), state, parameters)
            parameters = optax.apply_updates(parameters, updates)
            found.append(jnp.concatenate([parameters["first"], parameters["second"]]))
        return jnp.stack(found)

    return run


def halves(rows: Any) -> dict[str, Any]:
    """Two parameters."""
    return {"first": rows[:ROWS], "second": rows[ROWS:]}


def meant(update: Update) -> Callable[[np.ndarray], np.ndarray]:
    """The same by a formula."""

    def run(stack: np.ndarray) -> np.ndarray:
        parameters, memory, found = stack[0], Memory(), []
        for number, gradients in enumerate(stack[1:]):
            parameters = parameters + update(number, gradients, parameters, memory)
            found.append(parameters)
        return np.stack(found)

    return run


def average(memory: Memory, name: str, value: Any, decay: float, share: float) -> Any:
    """What is kept by that name: ``decay`` of itself and that share of the value."""
    memory[name] = decay * memory.get(name, 0) + share * value
    return memory[name]


def momentum(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Sutskever et al. (2013), as optax has it: no dampening."""
    return -RATE * average(memory, "m", g, 0.9, 1)


def nesterov(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """One look ahead."""
    return -RATE * (g + 0.9 * average(memory, "m", g, 0.9, 1))


def adam(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Kingma and Ba (2015), algorithm 1."""
    m = average(memory, "m", g, 0.9, 0.1) / (1 - 0.9 ** (number + 1))
    v = average(memory, "v", g**2, 0.999, 0.001) / (1 - 0.999 ** (number + 1))
    return -RATE * m / (np.sqrt(v) + 1e-8)


def adamw(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Loshchilov and Hutter (2019): decay beside the gradient's part."""
    return adam(number, g, p, memory) - RATE * 0.1 * p


def rms(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Tieleman and Hinton (2012)."""
    return -RATE * g / np.sqrt(average(memory, "v", g**2, 0.9, 0.1) + 1e-8)


def clipped(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Pascanu et al. (2013), by the norm of all gradients."""
    return -RATE * g / max(1, np.sqrt((g**2).sum()))


def decayed(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Of the first parameter alone."""
    return -RATE * np.concatenate([g[:ROWS] + 0.5 * p[:ROWS], g[ROWS:]])


def masked(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """The first is doubled, and the second passes."""
    return -RATE * np.concatenate([2 * g[:ROWS], g[ROWS:]])


def every_second(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """The mean of two gradients."""
    waiting = memory.pop("g", None)
    if waiting is None:
        memory["g"] = g
        return np.zeros_like(g)
    return -RATE * (waiting + g) / 2


def signs(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Chen et al. (2023), algorithm 2: Lion, whose direction and moment take other shares of the gradient."""
    direction = np.sign(0.9 * memory.get("m", 0) + 0.1 * g)
    average(memory, "m", g, 0.99, 0.01)
    return -RATE * (direction + 0.001 * p)


def trusted(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """You et al. (2020), algorithm 2: LAMB, each parameter by its own norm."""
    m = average(memory, "m", g, 0.9, 0.1) / (1 - 0.9 ** (number + 1))
    v = average(memory, "v", g**2, 0.999, 0.001) / (1 - 0.999 ** (number + 1))
    direction = m / (np.sqrt(v) + 1e-6) + 0.1 * p
    ratios = [np.linalg.norm(p[part]) / np.linalg.norm(direction[part]) for part in (np.s_[:ROWS], np.s_[ROWS:])]
    return -RATE * np.concatenate([ratios[0] * direction[:ROWS], ratios[1] * direction[ROWS:]])


def parted(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """The first by momentum, the second by its gradient."""
    return -RATE * np.concatenate([average(memory, "m", g[:ROWS], 0.9, 1), 2 * g[ROWS:]])


def factored(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Shazeer and Stern (2018), algorithm 4: the second moment of each parameter by its rows and its columns."""
    decay = 1 - (number + 1) ** -0.8
    found = []
    for name, part in (("first", np.s_[:ROWS]), ("second", np.s_[ROWS:])):
        square = g[part] ** 2 + 1e-30
        rows = average(memory, f"{name} rows", square.mean(1), decay, 1 - decay)
        columns = average(memory, f"{name} columns", square.mean(0), decay, 1 - decay)
        found.append(g[part] / np.sqrt(np.outer(rows, columns) / rows.mean()))
    return -RATE * np.concatenate(found)


def each_clipped(number: int, g: np.ndarray, p: np.ndarray, memory: Memory) -> Any:
    """Each element alone."""
    return -RATE * np.clip(g, -0.5, 0.5)


def scheduled(rates: tuple[float, ...]) -> Update:
    """Each step by its rate."""
    return lambda number, g, p, memory: -rates[number] * g


FIRST = {"first": True, "second": False}
PARTS = {"first": "a", "second": "b"}

TRANSFORMATIONS: dict[str, tuple[Callable[[], Any], Update]] = {
    "momentum": (lambda: optax.sgd(RATE, momentum=0.9), momentum),
    "nesterov": (lambda: optax.sgd(RATE, momentum=0.9, nesterov=True), nesterov),
    "adam": (lambda: optax.adam(RATE), adam),
    "adamw": (lambda: optax.adamw(RATE, weight_decay=0.1), adamw),
    "rmsprop": (lambda: optax.rmsprop(RATE), rms),
    "clip_by_global_norm": (lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(RATE)), clipped),
    "decayed": (lambda: optax.chain(optax.add_decayed_weights(0.5, FIRST), optax.sgd(RATE)), decayed),
    "masked": (lambda: optax.chain(optax.masked(optax.scale(2.0), FIRST), optax.sgd(RATE)), masked),
    "multi_steps": (lambda: optax.MultiSteps(optax.sgd(RATE), 2).gradient_transformation(), every_second),
    "warm_up": (
        lambda: optax.sgd(optax.warmup_cosine_decay_schedule(0.0, RATE, 1, 3, end_value=RATE / 2)),
        scheduled((0, RATE, 0.75 * RATE, 0.5 * RATE)),
    ),
    "lion": (lambda: optax.lion(RATE, weight_decay=0.001), signs),
    "lamb": (lambda: optax.lamb(RATE, weight_decay=0.1), trusted),
    "partition": (
        lambda: optax.partition({"a": optax.sgd(RATE, momentum=0.9), "b": optax.sgd(2 * RATE)}, PARTS),
        parted,
    ),
    "factored": (
        lambda: optax.chain(optax.scale_by_factored_rms(min_dim_size_to_factor=2), optax.sgd(RATE)),
        factored,
    ),
    "clip": (lambda: optax.chain(optax.clip(0.5), optax.sgd(RATE)), each_clipped),
    "injected": (
        lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=optax.linear_schedule(RATE, 0.0, 4)),
        scheduled((RATE, 0.75 * RATE, 0.5 * RATE, 0.25 * RATE)),
    ),
}

OPTIMIZERS = tuple(
    Operation(
        f"optax_{name}",
        stepped(make),
        (Operand((5, 8, 16), draws=(normal,)),),
        meant(update),
        exact=False,
        differentiable=False,
        axis_types=("Auto",),
        most=3,
    )
    for name, (make, update) in TRANSFORMATIONS.items()
)
