"""Annotated strategies in Flax Linen: logical axes on the initializers, rules to the mesh, and a ``TrainState``.

The module is annotated by ``nn.with_logical_partitioning`` and knows no mesh; the page's storage mappings are its rules
(``nn.get_partition_spec``, ``nn.logical_to_mesh``). After that the boxes around the parameters are taken off. What
enters the computation and leaves the step is constrained as in plain JAX.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.training import train_state
from jax.lax import with_sharding_constraint

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form, OnMesh, abstract_key
from reference_impl.forms.layouts import Annotated
from reference_impl.lifecycle.rule_tables import Rule, settle
from reference_impl.mapping import Mapping
from reference_impl.models import mlp, mlp_linen
from reference_impl.models.layout import Layout

MODULES: dict[type, Any] = {mlp.MLP: mlp_linen.MLP}
"""The Linen module of each model: it is made of the description."""


class TrainState(train_state.TrainState):
    """Flax's own, with its parts under the book's names too."""

    @property
    def parameters(self) -> Any:
        """The canonical parameters."""
        return self.params

    @property
    def optimizer(self) -> Any:
        """The optimizer's own state."""
        return self.opt_state


class LinenForm(JaxForm):
    """State is Flax's ``TrainState``; the optimizer is its ``apply_gradients``."""

    framework = "linen"

    @cached_property
    def module(self) -> nn.Module:
        """The model as a module."""
        return MODULES[type(self.network.plain)](self.network.plain)

    @cached_property
    def state_specs(self) -> TrainState:
        """The storage layout of a whole state: the module's annotations, by the page's rules."""
        boxed = jax.eval_shape(lambda key: self.create(boxed_parameters(self, self.module, key)), abstract_key())
        annotations = nn.get_partition_spec(boxed)
        stored = nn.logical_to_mesh(annotations, rules(self.page.parameters))
        return stored.replace(opt_state=nn.logical_to_mesh(annotations.opt_state, rules(self.page.optimizer)))

    def resolve(self, table: Iterable[Rule]) -> Tree:
        """By Linen's own rules, of which it takes the first that names an axis; it asks for nothing in the context."""
        table = [(name, physical or None) for name, physical in table]
        settle(table, self.network.axes)
        boxed = jax.eval_shape(lambda key: boxed_parameters(self, self.module, key), abstract_key())
        return nn.logical_to_mesh(nn.get_partition_spec(boxed), table)  # type: ignore[no-any-return]

    @cached_property
    def init_parameters(self) -> OnMesh:
        """Key to placed parameters."""
        return self.compile(
            lambda key: nn.unbox(boxed_parameters(self, self.module, key)),
            out_shardings=self.on_mesh(self.state_specs.parameters),
        )

    @cached_property
    def start(self) -> OnMesh:
        """Placed parameters to a state with the optimizer's zeros; the parameters are donated."""
        return self.compile(self.create, donate_argnums=0, out_shardings=self.on_mesh(self.state_specs))

    def create(self, parameters: Tree) -> TrainState:
        """`start`, before ``jit``."""
        state = TrainState.create(apply_fn=self.module.apply, params=parameters, tx=self.transform)
        return state.replace(step=jnp.int32(0))  # Flax's own 0 has a weak type, which no checkpoint keeps

    def update(self, state: Any, gradients: Tree) -> Any:
        """The optimizer, as Flax has it."""
        with jax.named_scope("optimizer"):
            return state.apply_gradients(grads=gradients)

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The loss of the global batch; parameters are constrained to their compute layout first."""
        with jax.named_scope("forward"):
            in_use = with_sharding_constraint(parameters, self.page.compute.specs(self.network.axes))
            layout = Annotated(self.page.compute)
            apply = self.network.applied(lambda parameters, x: self.module.apply({"params": parameters}, x, layout))
            return self.network.loss_of(apply(in_use, batch["x"]), batch)


def boxed_parameters(form: Form, module: nn.Module, key: jax.Array) -> Tree:
    """A module's parameters, each in the box of its annotation."""
    [batch] = form.batches(1)
    return module.init(key, batch["x"], Layout())["params"]


def rules(mapping: Mapping) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
    """A mapping as Linen's rules."""
    return tuple((name, axes or None) for name, axes in mapping.placed.items())
