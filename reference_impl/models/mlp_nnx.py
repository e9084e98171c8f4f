"""The MLP of the book in Flax NNX: ``nnx.Linear`` layers, initializers annotated with their partitioning."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from meshproof.contract import leaves
from reference_impl.mapping import Mapping
from reference_impl.models import mlp
from reference_impl.models.layout import Layout

Spec = tuple[str | tuple[str, ...] | None, ...]
"""A ``PartitionSpec``, as annotations have it."""


class MLP(nnx.Module):
    """``mlp.MLP`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``, if any."""

    def __init__(self, description: mlp.MLP, storage: Mapping | None, *, rngs: nnx.Rngs) -> None:
        self.description = description
        for (name, axes), (d, f) in zip(description.axes.items(), pairwise(description.widths), strict=True):
            specs = (None if storage is None else tuple(storage.spec(axes[part])) for part in ("kernel", "bias"))
            setattr(self, name, self.layer(d, f, *specs, rngs=rngs))

    def layer(self, d: int, f: int, kernel: Spec | None, bias: Spec | None, *, rngs: nnx.Rngs) -> nnx.Module:
        """A layer whose initializers annotate."""
        kernel_init = self.annotated(nnx.initializers.lecun_uniform(), kernel)
        bias_init = self.annotated(nnx.initializers.zeros_init(), bias)
        return nnx.Linear(d, f, kernel_init=kernel_init, bias_init=bias_init, rngs=rngs)

    def annotated(self, initializer: Any, spec: Spec | None) -> Any:
        """An initializer with its partitioning, if there is one."""
        return initializer if spec is None else nnx.with_partitioning(initializer, spec)

    def __call__(self, x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C)."""
        for i, (name, (over, into)) in enumerate(self.description.layers.items()):
            if i > 0:
                x_BxD = jax.nn.relu(x_BxD)
            x_BxD = layout.leave(getattr(self, name)(layout.enter(x_BxD, into)), over, (into,))
        return x_BxD


class Affine(nnx.Module):
    """``x W + b`` of two parameters that are annotated as variables are: flax before 0.12.4 ignores it."""

    def __init__(self, d: int, f: int, kernel: Spec | None, bias: Spec | None, *, rngs: nnx.Rngs) -> None:
        w_DxF = nnx.initializers.lecun_uniform()(rngs.params(), (d, f))
        self.kernel = nnx.Param(w_DxF, out_sharding=kernel)
        self.bias = nnx.Param(jnp.zeros(f), out_sharding=bias)

    def __call__(self, x_BxD: jax.Array) -> jax.Array:
        """Products (B, F)."""
        return x_BxD @ self.kernel[...] + self.bias[...]


class VariablesMLP(MLP):
    """The same MLP of layers written by hand."""

    layer = Affine


class RulesMLP(MLP):
    """The same MLP with its own rules: initializers annotated with logical axes and, as ``sharding_rules``, the mesh
    axes that split each of these, or ``None``.

    ``nnx.with_partitioning`` is ``nnx.with_metadata`` with the key that this version of Flax reads axes from.
    """

    def __init__(self, description: mlp.MLP, storage: Mapping, *, rngs: nnx.Rngs) -> None:
        names = sorted({axis for _, axes in leaves(description.axes) for axis in axes})
        self.rules = tuple((name, *storage.spec((name,))) for name in names)
        super().__init__(description, Mapping(**{name: name for name in names}), rngs=rngs)

    def annotated(self, initializer: Any, spec: Spec | None) -> Any:
        """With its rules."""
        return nnx.with_partitioning(initializer, spec, sharding_rules=self.rules)
