"""Faults in where state and batches lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec

from meshproof.contract import leaves, nest
from reference_impl.forms.base import Form, TrainState
from reference_impl.forms.nnx_form import NnxForm, store
from tests.saboteurs.operators.mutation import Members, is_annotated, is_pmap, method, operator, shards


def storing(form: Form, harm: Callable[[Any], Any]) -> Members:
    """The members of a form whose state is stored otherwise than its contract says: of NNX, as it is annotated."""
    if not isinstance(form, NnxForm):
        healthy: Any = type(form).state_specs  # type: ignore[attr-defined]
        return {"state_specs": property(lambda self: harm(healthy.func(self)))}
    axes = form.network.axes
    harmed = harm(TrainState(form.page.parameters.specs(axes), form.page.optimizer.specs(axes)))

    def annotated(objects: Any, specs: Any) -> Any:
        for place, variable in nnx.iter_graph(objects):
            for path, spec in leaves(specs):
                if isinstance(variable, nnx.Variable) and "/".join(map(str, place)).endswith(path):
                    variable.set_metadata(out_sharding=tuple(spec))
        store(objects)
        return objects

    return {
        "create_model": lambda self, key: annotated(method(form, "create_model")(self, key), harmed.parameters),
        "create_optimizer": lambda self, model: annotated(
            method(form, "create_optimizer")(self, model), harmed.optimizer
        ),
    }


def respecified(form: Form, harm: Callable[[PartitionSpec, tuple[int, ...]], PartitionSpec | None]) -> Members | None:
    """The members of a form of which the first parameter that can be is stored by another spec."""
    shapes, specs = (
        dict(leaves(tree)) for tree in (form.network.shapes, form.page.parameters.specs(form.network.axes))
    )
    others = {path: harm(spec, shapes[path]) for path, spec in specs.items() if any(spec)}
    harmed = dict([(path, other) for path, other in others.items() if other is not None][:1])
    if not is_annotated(form) or not harmed:
        return None
    return storing(form, lambda state: state._replace(parameters=nest(dict(leaves(state.parameters)) | harmed)))


@operator
def spec_dropped(form: Form) -> Members | None:
    """One parameter that is to be sharded lies whole on every device."""
    return respecified(form, lambda spec, shape: PartitionSpec())


@operator
def spec_swapped(form: Form) -> Members | None:
    """One parameter is sharded along its other dimension."""

    def swapped(spec: PartitionSpec, shape: tuple[int, ...]) -> PartitionSpec | None:
        return PartitionSpec(*reversed([*spec, *[None] * (len(shape) - len(spec))])) if len(shape) == 2 else None

    return respecified(form, swapped)


@operator
def spec_misspelt(form: Form) -> Members | None:
    """A logical axis that no parameter has, so that the rule for it is ignored."""
    axes = {axis for _, names in leaves(form.network.axes) for axis in names}
    rules = {axis: over for axis, over in form.page.parameters.placed.items() if axis in axes}
    if not is_annotated(form) or not rules:
        return None
    first, *rest = rules
    misspelt = type(form.page.parameters)(**{f"{first}s": rules[first]}, **{axis: rules[axis] for axis in rest})
    return storing(form, lambda specs: specs._replace(parameters=misspelt.specs(form.network.axes)))


@operator
def momentum_replicated(form: Form) -> Members | None:
    """Every device holds the optimizer's whole state."""
    specs = [spec for _, spec in leaves(form.page.optimizer.specs(form.network.axes))]
    if not is_annotated(form) or not any(any(spec) for spec in specs):
        return None
    is_spec = lambda node: isinstance(node, PartitionSpec)  # noqa: E731
    return storing(
        form,
        lambda specs: specs._replace(
            optimizer=jax.tree.map(lambda _: PartitionSpec(), specs.optimizer, is_leaf=is_spec)
        ),
    )


def loading(form: Form, harm: Callable[[np.ndarray], np.ndarray]) -> Members:
    """The members of a form that places other examples than it was given."""

    def shard_batch(self: Any, batch: Any) -> Any:
        return method(form, "shard_batch")(self, {name: harm(np.asarray(field)) for name, field in batch.items()})

    return {"shard_batch": shard_batch}


@operator
def batch_rolled(form: Form) -> Members | None:
    """Every example lies one place further: nothing is lost, and other devices have it.

    No fault where every device has all of them: a mean does not depend on their order.
    """
    return loading(form, lambda field: np.roll(field, 1, 0)) if shards(form) > 1 else None


@operator
def shard_0_everywhere(form: Form) -> Members | None:
    """Every device trains on the first one's examples."""
    parts = shards(form)
    return loading(form, lambda field: np.concatenate([field[: len(field) // parts]] * parts)) if parts > 1 else None


@operator
def batch_replicated(form: Form) -> Members | None:
    """Every device receives the whole batch."""
    if is_pmap(form) or shards(form) == 1:
        return None
    return {"shard_batch": lambda self, batch: jax.device_put(dict(batch), self.on_mesh(PartitionSpec()))}


@operator
def last_batch_lost(form: Form) -> Members:
    """An epoch ends before its last batch."""
    return {"batches": lambda self, count: list(method(form, "batches")(self, count))[: max(count - 1, 1)]}


@operator
def evaluation_drops_the_rest(form: Form) -> Members | None:
    """What fills no whole batch is not evaluated."""
    if not hasattr(form, "evaluate"):
        return None

    def evaluate(self: Any, state: Any, batch: Any) -> Any:
        totals = method(form, "evaluate")(self, state, batch)
        return totals if len(batch["y"]) == self.batch_size else jax.tree.map(lambda total: total * 0, totals)

    return {"evaluate": evaluate}
