"""Faults of batch normalisation: whose statistics, what becomes of them, and what flows through them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from reference_impl.evaluation import totals
from reference_impl.forms.keeping import NnxAveraging, NnxAveragingPmap
from reference_impl.models.batch_norm_cnn import BatchNormCNN
from reference_impl.strategies import sync_batch_norm, sync_batch_norm_pmap
from tests.saboteurs.planting import DATA, plant

PIXELS = (0, 1, 2)


def norms(model: Any) -> Iterator[Any]:
    """Those of a module."""
    return (node for _, node in nnx.iter_graph(model) if isinstance(node, nnx.BatchNorm))


class AxisLeftOut(NnxAveragingPmap):
    """The tutorials' norms, which are told of no axis: every device normalises by its own examples."""

    def objects(self, key: Any) -> Any:
        """As the book's, but for that."""
        model, optimizer = super().objects(key)
        for norm in norms(model):
            norm.axis_name = None
        return model, optimizer


class Otherwise(nnx.BatchNorm):
    """A norm that trains otherwise, and evaluates as Flax has it."""

    def __call__(self, x: Any) -> Any:
        """By running statistics, or by its own."""
        return super().__call__(x) if self.use_running_average else self.normalise(x)

    def normalise(self, x: Any) -> Any:
        """In training."""
        raise NotImplementedError

    def scaled(self, x: Any, mean: Any, variance: Any) -> Any:
        """Normalised by these, which a running statistic averages."""
        for running, new in ((self.mean, mean), (self.var, variance)):
            running[...] = self.momentum * running[...] + (1 - self.momentum) * new.reshape(-1, len(running)).mean(0)
        return (x - mean) * jax.lax.rsqrt(variance + self.epsilon) * self.scale[...] + self.bias[...]


class OwnExamples(Otherwise):
    """Each eighth of the batch by its own statistics, as if each device were alone."""

    def normalise(self, x: Any) -> Any:
        """Eight batches."""
        parts = x.reshape(8, -1, *x.shape[1:])
        return self.scaled(parts, *(of(parts, (1, 2, 3), keepdims=True) for of in (jnp.mean, jnp.var))).reshape(x.shape)


class TakenForConstants(Otherwise):
    """The right statistics, and no gradient through them."""

    def normalise(self, x: Any) -> Any:
        """By numbers that seem to depend on nothing."""
        mean, squares = jax.lax.stop_gradient((x.mean(PIXELS), jnp.square(x).mean(PIXELS)))
        return self.scaled(x, mean, squares - mean**2)


class NormsOtherwise(NnxAveraging):
    """The book's form, with other norms in its module."""

    norm: ClassVar[type] = nnx.BatchNorm

    def module(self, *given: Any) -> Any:
        """The same layers, of another class."""
        model = super().module(*given)
        for norm in norms(model):
            norm.__class__ = self.norm
        return model


class NormsOwnExamples(NormsOtherwise):
    """Statistics of each device's part of the batch."""

    norm = OwnExamples


class StopsGradients(NormsOtherwise):
    """Mean and variance taken for constants."""

    norm = TakenForConstants


class OtherMomentum(NnxAveraging):
    """Flax's own momentum, which the contract's truth does not have."""

    def module(self, *given: Any) -> Any:
        """Of 0.99."""
        model = super().module(*given)
        for norm in norms(model):
            norm.momentum = 0.99
        return model


class NeverAverages(NnxAveraging):
    """Running statistics that stay 0 and 1, where there is more than one device: the step changes a copy of them."""

    def loss_and_gradients(self, model: Any, batch: Any) -> Any:
        """Of the copy."""
        return super().loss_and_gradients(nnx.clone(model) if prod(self.mesh_axes.values()) > 1 else model, batch)


class EvaluatesByTheBatch(NnxAveraging):
    """Nobody called ``eval``: what is evaluated is normalised by its own batch, and its padding."""

    @cached_property
    def totals(self) -> Any:
        """Of a model as it was trained."""
        return self.compile(lambda state, batch: totals(self.outputs(nnx.clone(state[0]), batch), batch), nnx.jit)


NETWORK = BatchNormCNN()
ANNOTATED: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("healthy_batch_norm", NnxAveraging, ()),
    ("norms_own_examples", NormsOwnExamples, ("NUM-2", "NUM-3", "COM-11")),
    ("stops_gradients_of_statistics", StopsGradients, ("NUM-2", "NUM-3")),
    ("statistics_of_another_momentum", OtherMomentum, ("NUM-3",)),
    ("statistics_never_averaged", NeverAverages, ("AUX-1", "NUM-3")),
    ("evaluates_by_the_batch", EvaluatesByTheBatch, ("MSK-1",)),
)
for name, form, clauses in ANNOTATED:
    plant(name, form, sync_batch_norm.PAGE, DATA, *clauses, network=NETWORK)
plant("healthy_batch_norm_pmap", NnxAveragingPmap, sync_batch_norm_pmap.PAGE, DATA, network=NETWORK)
CAUGHT = ("NUM-2", "NUM-3", "NUM-6", "COM-11")
plant("axis_of_norm_left_out", AxisLeftOut, sync_batch_norm_pmap.PAGE, DATA, *CAUGHT, network=NETWORK)
