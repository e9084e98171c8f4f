"""Faults in what is computed: gradients, examples, updates, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from meshproof.contract import leaves, nest
from reference_impl import optimizers
from reference_impl.forms.base import Form
from tests.saboteurs.operators.mutation import Members, method, operator, shards


def harming_gradients(form: Form, harm: Callable[[Any], Any]) -> Members:
    """The members of a form that harms every gradient leaf."""

    def loss_and_gradients(self: Any, *given: Any) -> Any:
        loss, gradients = method(form, "loss_and_gradients")(self, *given)
        return loss, jax.tree.map(harm, gradients)

    return {"loss_and_gradients": loss_and_gradients}


def first_kernel(harm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Harms the first leaf that has rows and columns, each time the tree is walked."""
    seen: list[int] = []

    def one(leaf: Any) -> Any:
        if leaf.ndim < 2 or (seen and seen[0] != leaf.shape):
            return leaf
        seen[:] = [leaf.shape]
        return harm(leaf)

    return one


@operator
def gradient_rolled_by_a_row(form: Form) -> Members:
    """Rows of kernels of one shape belong to their neighbours."""
    return harming_gradients(form, first_kernel(lambda leaf: jnp.roll(leaf, 1, -2)))


@operator
def gradient_scaled_by_a_thousandth(form: Form) -> Members:
    """One kernel's, and those of its shape."""
    return harming_gradients(form, first_kernel(lambda leaf: leaf * 1.001))


@operator
def gradients_in_bf16(form: Form) -> Members:
    """Rounded on their way to the optimizer."""
    return harming_gradients(form, lambda leaf: jax.lax.reduce_precision(leaf, 8, 7))


@operator
def sum_for_mean(form: Form) -> Members | None:
    """Gradients are as many times too long as the batch has shards."""
    parts = shards(form)
    return harming_gradients(form, lambda leaf: leaf * parts) if parts > 1 else None


@operator
def mean_for_sum(form: Form) -> Members | None:
    """A mean of means: gradients are as many times too short."""
    parts = shards(form)
    return harming_gradients(form, lambda leaf: leaf / parts) if parts > 1 else None


@operator
def example_counted_twice(form: Form) -> Members:
    """The last example stands in the place of the first, too."""

    def loss_and_gradients(self: Any, held: Any, batch: Any) -> Any:
        twice = {name: field.at[0].set(field[-1]) if field.ndim else field for name, field in batch.items()}
        return method(form, "loss_and_gradients")(self, held, twice)

    return {"loss_and_gradients": loss_and_gradients}


def optimizing(form: Form, harm: Callable[[optax.GradientTransformation], optax.GradientTransformation]) -> Members:
    """The members of a form that trains by another transformation than its contract and its truth say."""
    return {"transform": property(lambda self: harm(optimizers.transformation(self.optimizer)))}


@operator
def momentum_zeroed(form: Form) -> Members:
    """The optimizer starts anew at every step: the first one looks right."""

    def anew(healthy: optax.GradientTransformation) -> optax.GradientTransformation:
        return optax.GradientTransformation(
            healthy.init, lambda g, state, p: healthy.update(g, jax.tree.map(jnp.zeros_like, state), p)
        )

    return optimizing(form, anew)


@operator
def momentum_updated_twice(form: Form) -> Members:
    """The same gradients are counted two times."""

    def twice(healthy: optax.GradientTransformation) -> optax.GradientTransformation:
        return optax.GradientTransformation(
            healthy.init, lambda g, state, p: healthy.update(g, healthy.update(g, state, p)[1], p)
        )

    return optimizing(form, twice)


@operator
def learning_rate_scaled(form: Form) -> Members:
    """A hundredth too long: no loss curve shows it."""
    faster = replace(form.optimizer, learning_rate=form.optimizer.learning_rate * 1.01)
    return optimizing(form, lambda _: optimizers.transformation(faster))


@operator
def stale_parameters(form: Form) -> Members:
    """One parameter is handed on as it was before the update: of NNX, which updates in place, the largest."""

    def largest_never_moves(healthy: optax.GradientTransformation) -> optax.GradientTransformation:
        def moved(gradients: Any, state: Any, parameters: Any) -> Any:
            updates, state = healthy.update(gradients, state, parameters)
            largest = max(jax.tree.leaves(updates), key=jnp.size)
            return jax.tree.map(lambda leaf: leaf * 0 if leaf is largest else leaf, updates), state

        return optax.GradientTransformation(healthy.init, moved)

    def update(self: Any, state: Any, gradients: Any) -> Any:
        updated = method(form, "update")(self, state, gradients)
        path, stale = next(iter(leaves(state.parameters)))
        return updated._replace(parameters=nest(dict(leaves(updated.parameters)) | {path: stale}))

    return optimizing(form, largest_never_moves) if form.framework == "nnx" else {"update": update}


@operator
def loss_misreported(form: Form) -> Members:
    """A loss that it does not train on, a thousandth too small."""

    def step(self: Any, state: Any, batch: Any) -> Any:
        state, metrics = method(form, "step")(self, state, batch)
        return state, {"loss": metrics["loss"] * 0.999}

    return {"step": step}
