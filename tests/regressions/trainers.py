"""Trainers that use what a release broke: ``pytest suites --impl tests.regressions.trainers -k NAME``.

Each is named for its fault, and is what docs/adapters.md calls a trainer that promises nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


class Trainer:
    """Regression by gradient descent, on explicit mesh axes unless a subclass says otherwise."""

    name: str
    framework, model = "jax", "regression"
    mesh_axes: ClassVar = {"data": 8}
    axis_type = AxisType.Explicit
    whole, rows = PartitionSpec(), PartitionSpec("data")
    weights: tuple[int, ...] = (16, 8)
    inputs: tuple[int, ...] = (64, 16)
    at_rest = PartitionSpec()

    @cached_property
    def mesh(self) -> Mesh:
        """The first devices."""
        sizes = tuple(self.mesh_axes.values())
        return jax.make_mesh(sizes, tuple(self.mesh_axes), axis_types=(self.axis_type,) * len(sizes))

    def init(self, key: jax.Array) -> Any:
        """The weights."""
        return jax.device_put(jnp.ones(self.weights), NamedSharding(self.mesh, self.at_rest))

    def batches(self, count: int) -> list[dict[str, np.ndarray]]:
        """Inputs without targets: predictions shall become 0."""
        return [{"x": np.ones(self.inputs, np.float32)} for _ in range(count)]

    def predict(self, w: Any, x: jax.Array) -> jax.Array:
        """What a subclass computes in its own way."""
        return x @ w

    def step(self, w: Any, batch: Any) -> Any:
        """One step."""
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(self.predict(w, batch["x"]) ** 2))(w)
        return w - 0.01 * gradient, {"loss": loss}

    @cached_property
    def compiled(self) -> Any:
        """The step under ``jax.jit``."""
        return jax.jit(self.step)

    def train_step(self, w: Any, batch: Any) -> Any:
        """One step, under the mesh."""
        with jax.set_mesh(self.mesh):
            return self.compiled(w, jax.device_put(batch, NamedSharding(self.mesh, self.rows)))


class StaticArguments(Trainer):
    """``nnx.jit`` with a sharding for each argument that is not static."""

    name = "static_arguments_have_shardings"
    axis_type = AxisType.Auto

    @cached_property
    def compiled(self) -> Any:
        """With one argument more, which is static."""
        shardings = tuple(NamedSharding(self.mesh, spec) for spec in (self.whole, self.rows))
        step = nnx.jit(lambda w, batch, train: self.step(w, batch), in_shardings=shardings, static_argnums=2)
        return lambda w, batch: step(w, batch, True)


class AnnotatedLayer(Trainer):
    """A layer under a mesh, as it was written before there was ``jax.set_mesh``."""

    name = "with_mesh_is_no_mesh"
    axis_type = AxisType.Auto

    def init(self, key: jax.Array) -> Any:
        """Its kernel."""
        annotated = nnx.with_partitioning(nnx.initializers.ones_init(), (None, None))
        with self.mesh:
            return nnx.Linear(*self.weights, kernel_init=annotated, rngs=nnx.Rngs(0)).kernel[...]


class GradientsByExample(Trainer):
    """The gradients of a convolution by example, as differential privacy clips them."""

    name = "convolution_gradients_refuse_a_mesh"
    axis_type = AxisType.Auto
    weights, inputs = (1, 1, 3, 3), (64, 1, 4, 4)

    def step(self, w: Any, batch: Any) -> Any:
        """The mean of what the examples want."""

        def loss(w: jax.Array, x: jax.Array) -> jax.Array:
            return jnp.mean(jax.lax.conv_general_dilated(x[None], w, (1, 1), "VALID") ** 2)

        losses, gradients = jax.vmap(jax.value_and_grad(loss), (None, 0))(w, batch["x"])
        return w - 0.01 * jnp.mean(gradients, 0), {"loss": jnp.mean(losses)}

    @cached_property
    def compiled(self) -> Any:
        """Eager."""
        return self.step


class CommittedBatch(Trainer):
    """``pmap`` of a batch that a loader put on the first device."""

    name = "pmap_refuses_one_device"

    def init(self, key: jax.Array) -> Any:
        """A copy for each device."""
        return jnp.ones((8, *self.weights))

    @cached_property
    def pmapped(self) -> Any:
        """Means over devices."""

        def step(w: Any, x: Any) -> Any:
            w, metrics = self.step(w, {"x": x})
            return jax.lax.pmean((w, metrics), "data")

        return jax.pmap(step, axis_name="data")

    def train_step(self, w: Any, batch: Any) -> Any:
        """An eighth of the batch for each."""
        w, metrics = self.pmapped(w, jax.device_put(batch["x"].reshape(8, 8, 16), jax.devices()[0]))
        return w, {"loss": metrics["loss"][0]}


class ConstrainedActivations(Trainer):
    """Lays out what it predicts, on a mesh of which it says names and sizes."""

    name = "meshes_are_explicit"

    @cached_property
    def mesh(self) -> Mesh:
        """Of whatever axes JAX makes."""
        return jax.make_mesh((8,), ("data",))

    def predict(self, w: Any, x: jax.Array) -> jax.Array:
        """Whole on every device."""
        return jax.lax.with_sharding_constraint(x @ w, NamedSharding(self.mesh, self.whole))


class Gathered(Trainer):
    """A parameter that is sharded at rest, and that ``shard_map`` is to bring together."""

    name = "in_specs_must_match"
    at_rest = PartitionSpec("data")

    def step(self, w: Any, batch: Any) -> Any:
        """By hand, from what ``in_specs`` asks for."""
        specs = {"in_specs": (self.whole, self.rows), "out_specs": (self.whole, self.whole)}
        return jax.shard_map(super().step, check_vma=False, **specs)(w, batch)


class Factors(Trainer):
    """Decays the factors of a likelihood, and tells its logarithm."""

    name = "high_ranks_kill_the_process"
    mesh_axes: ClassVar = {"data": 1}
    weights, inputs = (2, 4, 6, 9, 9, 9, 9, 9), (2, 4, 6)

    @cached_property
    def likelihood(self) -> Any:
        """The mean logarithm, without a gradient."""
        ranks = (1,) * 5
        product = jax.jit(lambda w, x: jnp.log(jnp.maximum(jnp.sum(x.reshape(*x.shape, *ranks) * w, axis=2), 1e-16)))
        return lambda w, x: jnp.mean(product(w, x))

    def step(self, w: Any, batch: Any) -> Any:
        """One step."""
        return 0.99 * w, {"loss": -self.likelihood(w, batch["x"])}

    @cached_property
    def compiled(self) -> Any:
        """Eager around the likelihood."""
        return self.step


class Heads(Trainer):
    """Attention that splits its heads, on a batch of one."""

    name = "reshape_drops_an_axis"
    mesh_axes: ClassVar = {"data": 1, "tensor": 4}
    weights, inputs = (16, 512), (1, 16)
    at_rest = PartitionSpec(None, "tensor")

    def predict(self, w: Any, x: jax.Array) -> jax.Array:
        """Features by head."""
        heads = (x @ w).reshape(-1, 4, 128)
        return jax.lax.with_sharding_constraint(heads, PartitionSpec("data", "tensor"))


class Queries(Trainer):
    """Attention whose queries are split by heads and whose keys are whole."""

    name = "batch_dimensions_must_lie_alike"
    mesh_axes: ClassVar = {"model": 8}
    rows = PartitionSpec()
    weights, inputs = (2, 4, 8, 3), (2, 4, 8, 3)
    at_rest = PartitionSpec(None, None, "model")

    def predict(self, w: Any, x: jax.Array) -> jax.Array:
        """Scores."""
        return jnp.einsum("bqhk,bshk->bhqs", w, x)


def strategies() -> list[Trainer]:
    """All."""
    return [kind() for kind in Trainer.__subclasses__()]
