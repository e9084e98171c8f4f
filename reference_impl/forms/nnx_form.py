"""Annotated strategies in Flax NNX, the framework's own way.

Initializers are annotated by ``nnx.with_partitioning``, run inside ``nnx.jit`` under ``jax.set_mesh``, and parameters
are updated in place by ``nnx.Optimizer``, whose moments inherit the annotation. The step constrains what it computes
with and what it returns, as the plain JAX form does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import jax
import optax
from flax import nnx
from jax.lax import optimization_barrier, with_sharding_constraint
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree, leaves
from reference_impl import optimizers
from reference_impl.compat import resolving
from reference_impl.forms.base import Form, OnMesh, abstract_key
from reference_impl.forms.layouts import Annotated
from reference_impl.lifecycle.rule_tables import Rule, settle
from reference_impl.mapping import Mapping
from reference_impl.models import batch_norm_cnn, cnn, cnn_nnx, gpt, gpt_flax, gpt_nnx, mlp, mlp_columns, mlp_nnx
from reference_impl.truth import AveragedMomentum

MODULES: dict[type, Any] = {
    mlp.MLP: mlp_nnx.MLP,
    mlp_columns.ColumnMLP: mlp_columns.NnxColumnMLP,
    cnn.CNN: cnn_nnx.CNN,
    batch_norm_cnn.BatchNormCNN: batch_norm_cnn.CNN,
    gpt.GPT: gpt_nnx.GPT,
    gpt_flax.FlaxGPT: gpt_flax.GPT,
}
"""The NNX module of each model: it is made of the description, the storage mapping and ``rngs``."""

State = tuple[nnx.Module, Any]
"""The model and its optimizer."""


class SGDState(nnx.Variable):
    """A momentum, annotated as its parameter is."""


class SGD(nnx.Module):
    """SGD with averaging momentum, written by hand: ``m = d·m + (1−d)·g``, ``p −= lr·m``."""

    def __init__(self, model: nnx.Module, learning_rate: float, decay: float) -> None:
        self.learning_rate, self.decay = learning_rate, decay
        self.momentum = nnx.data(
            nnx.map_state(
                lambda _, p: SGDState(jax.numpy.zeros_like(p[...]), **p.get_metadata()), nnx.state(model, nnx.Param)
            )
        )

    def update(self, model: nnx.Module, gradients: nnx.State) -> None:
        """Replace the momentum and the model's parameters in place."""

        def step(parameter: nnx.Param, momentum: SGDState, gradient: nnx.Variable) -> None:
            momentum[...] = self.decay * momentum[...] + (1 - self.decay) * gradient[...]
            parameter[...] = parameter[...] - self.learning_rate * momentum[...]

        is_leaf = lambda node: isinstance(node, nnx.Variable)  # noqa: E731
        jax.tree.map(step, nnx.state(model, nnx.Param), self.momentum, gradients, is_leaf=is_leaf)


class NnxForm(Form):
    """State is ``(model, optimizer)``, two NNX objects that the step updates in place."""

    framework = "nnx"
    modules = MODULES

    def __post_init__(self) -> None:
        """Raises ``ValueError`` as every form, and for a model that accumulates: ``nnx.value_and_grad`` does not."""
        super().__post_init__()
        if parts := self.network.promises.get("microbatches"):
            raise ValueError(f"{parts} microbatches in {type(self).__name__}: expected none; NnxPmap accumulates")

    @cached_property
    def transform(self) -> optax.GradientTransformation:
        """The optimizer in optax's form, made once: its functions are part of what a compiled step is found by."""
        return optimizers.transformation(self.optimizer)

    def module(self, annotations: Mapping, key: jax.Array) -> nnx.Module:
        """The model as a module, annotated by a mapping."""
        return self.modules[type(self.network.plain)](self.network.plain, annotations, rngs=nnx.Rngs(key))  # type: ignore[no-any-return]

    def create_model(self, key: jax.Array) -> nnx.Module:
        """The model, before ``nnx.jit``. Constrained here, so that no device holds it whole."""
        model = self.module(self.page.parameters, key)
        if self.page.optimizer != self.page.parameters:
            declare_optimizer_sharding(model, dict(leaves(self.page.optimizer.specs(self.network.axes))))
        store(model)
        return model

    def create_optimizer(self, model: nnx.Module) -> Any:
        """Its optimizer, constrained too: a counter left on one device would make the second step compile again."""
        if isinstance(self.optimizer, AveragedMomentum):
            optimizer: Any = SGD(model, self.optimizer.learning_rate, self.optimizer.decay)
        else:
            optimizer = nnx.Optimizer(model, self.transform, wrt=nnx.Param)
        store(optimizer)
        return optimizer

    @cached_property
    def init(self) -> OnMesh:
        """Key to a state that is sharded as it is created."""
        return self.compile(self.create, nnx.jit)

    def create(self, key: jax.Array) -> State:
        """`init`, before ``nnx.jit``."""
        model = self.create_model(key)
        return model, self.create_optimizer(model)

    def resolve(self, table: Iterable[Rule]) -> Tree:
        """By NNX's own rules: parameters are annotated with their logical axes, which the context maps to the mesh."""
        settled = settle(table, self.network.axes)
        names = {name: name for name in settled.placed}
        return self.by_rules(Mapping(**names), tuple((name, axes or None) for name, axes in settled.placed.items()))

    def by_rules(self, annotations: Mapping, rules: Any) -> Tree:
        """The specs of parameters that are annotated so, as NNX resolves them. Makes no array."""
        with resolving(self.mesh), nnx.logical_axis_rules(rules):
            model = nnx.eval_shape(lambda key: self.module(annotations, key), abstract_key())
            return nnx.to_pure_dict(nnx.get_partition_spec(nnx.state(model, nnx.Param)))  # type: ignore[no-any-return]

    def abstract_state(self) -> State:
        """What `init` returns, without its arrays: the objects, sharded as their annotations declare."""
        with jax.set_mesh(self.mesh):
            objects = nnx.eval_shape(self.create, abstract_key())
        graph, state = nnx.split(objects)
        return nnx.merge(graph, self.shard(state, nnx.get_partition_spec(state)))  # type: ignore[no-any-return]

    def load(self, parameters: Tree) -> State:
        """A state that holds these canonical host values."""
        model, optimizer = self.init(jax.random.key(0))
        placed = jax.device_put(dict(parameters), self.on_mesh(self.page.parameters.specs(self.network.axes)))
        nnx.update(model, nnx.State(placed))
        return model, optimizer

    @cached_property
    def train_step(self) -> OnMesh:
        """``(state, batch) → (state, {"loss"})``; the state is donated and updated in place."""
        return self.compile(self.step, nnx.jit, donate_argnums=0)

    @cached_property
    def loss(self) -> OnMesh:
        """The forward pass: scalar mean loss of the global batch."""
        return self.compile(lambda state, batch: self.forward(state[0], batch), nnx.jit)

    @cached_property
    def gradients(self) -> OnMesh:
        """The gradients as a canonical tree."""
        return self.compile(lambda state, batch: nnx.to_pure_dict(self.loss_and_gradients(state[0], batch)[1]), nnx.jit)

    def parameters(self, state: State) -> Tree:
        """The canonical parameter tree of global arrays."""
        return nnx.to_pure_dict(nnx.state(state[0], nnx.Param))

    def optimizer_state(self, state: State) -> Tree:
        """The canonical optimizer tree of global arrays."""
        optimizer = state[1]
        if isinstance(optimizer, SGD):
            return {"momentum": nnx.to_pure_dict(nnx.state(optimizer.momentum))}
        return optimizers.canonical(self.optimizer, nnx.to_pure_dict(nnx.state(optimizer))["opt_state"])

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        """The train step, before ``nnx.jit``."""
        model, optimizer = state
        loss, gradients = self.loss_and_gradients(model, batch)
        with jax.named_scope("optimizer"):
            if self.page.gradients != self.page.optimizer:
                gradients = optimization_barrier(gradients)
            optimizer.update(model, gradients)
            store(state)
        return state, {"loss": loss}

    def forward(self, model: nnx.Module, batch: Batch) -> jax.Array:
        """The loss of the global batch; parameters are constrained to their compute layout first."""
        with jax.named_scope("forward"):
            return self.network.loss_of(self.outputs(model, batch), batch)

    def outputs(self, model: nnx.Module, batch: Batch) -> jax.Array:
        """Those of the model, computed with its compute layout."""
        graph, parameters, rest = nnx.split(model, nnx.Param, ...)
        in_use = with_sharding_constraint(nnx.to_pure_dict(parameters), self.page.compute.specs(self.network.axes))
        drawn = {"step": batch["step"]} if "step" in batch else {}

        def apply(in_use: Tree, x: jax.Array) -> jax.Array:
            nnx.replace_by_pure_dict(parameters, in_use)
            module = nnx.merge(graph, parameters, rest)
            outputs = module(x, Annotated(self.page.compute), **drawn)
            nnx.update(model, nnx.state(module, nnx.Not(nnx.Param)))
            return outputs  # type: ignore[no-any-return]

        return self.network.applied(apply)(in_use, batch["x"])

    def loss_and_gradients(self, model: nnx.Module, batch: Batch) -> tuple[jax.Array, nnx.State]:
        """The loss, and its gradients in their storage layout."""
        loss, gradients = nnx.value_and_grad(self.forward)(model, batch)
        with jax.named_scope("synchronize_gradients"):
            specs = self.page.gradients.specs(self.network.axes)
            nnx.replace_by_pure_dict(gradients, with_sharding_constraint(nnx.to_pure_dict(gradients), specs))
            return loss, gradients


class VariablesForm(NnxForm):
    """Annotated by ``nnx.Param(…, out_sharding=…)`` instead of an initializer, as in the guides since flax 0.12.4."""

    modules = MODULES | {mlp.MLP: mlp_nnx.VariablesMLP}


class RulesForm(NnxForm):
    """Annotated with logical axes, each initializer with its own ``sharding_rules``, which map them to the mesh."""

    modules = MODULES | {mlp.MLP: mlp_nnx.RulesMLP}

    def resolve(self, table: Iterable[Rule]) -> Tree:
        """By the variables' own rules, with none in the context."""
        return self.by_rules(settle(table, self.network.axes), ())


def declare_optimizer_sharding(model: nnx.Module, specs: dict[str, PartitionSpec]) -> None:
    """Annotate parameters whose optimizer state is sharded differently from them (flax ≥ 0.12.7; older ignore it)."""
    for path, parameter in nnx.iter_graph(model):
        if isinstance(parameter, nnx.Param):
            parameter.set_metadata(optimizer_sharding=tuple(specs["/".join(map(str, path))]))


def store(objects: Any) -> None:
    """Constrain all arrays of NNX objects to the layout that their annotations declare."""
    state = nnx.state(objects)
    nnx.update(objects, with_sharding_constraint(state, nnx.get_partition_spec(state)))
