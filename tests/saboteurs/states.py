"""Faults in what a state is born as, what it is shown as, and what it has besides parameters and optimizer."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from reference_impl import optimizers
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState
from reference_impl.strategies import data_parallel, fsdp
from tests.saboteurs.layout import Inert
from tests.saboteurs.planting import DATA, plant

OTHERWISE = PartitionSpec(None, "data")
"""The columns of a kernel split where its rows are to be, or the other way about: shards of as many bytes."""


class Born(JaxForm):
    """An ``init`` with a table of shardings of its own, of which one entry is wrong; ``load`` has the right one."""

    def born_specs(self) -> TrainState:
        """The wrong table."""
        raise NotImplementedError

    @cached_property
    def init(self) -> Any:
        """By that table."""
        make = lambda key: TrainState(w := self.network.init(key), self.transform.init(w))  # noqa: E731
        return self.compile(make, out_shardings=self.on_mesh(self.born_specs()))


class ParameterBornOtherwise(Born):
    """A kernel that is born in columns."""

    def born_specs(self) -> TrainState:
        """All but that one as declared."""
        parameters = self.page.parameters.specs(self.network.axes)
        parameters["dense_1"]["kernel"] = OTHERWISE
        return TrainState(parameters, self.state_specs.optimizer)


class MomentumBornOtherwise(Born):
    """A momentum that is born in columns."""

    def born_specs(self) -> TrainState:
        """All but that one as declared."""
        moments = self.page.optimizer.specs(self.network.axes)
        moments["dense_1"]["kernel"] = OTHERWISE
        shapes = jax.eval_shape(self.network.init, jax.random.key(0))
        return TrainState(self.state_specs.parameters, optimizers.specs(self.transform, shapes, moments))


class Credulous(NamedSharding):
    """A framework whose comparison of shardings looks at how many parts there are, and not along which dimension."""

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """As many devices will do."""
        return self.num_devices == other.num_devices


class ShownOtherwise(JaxForm):
    """Parameters that the framework says lie as declared, whose shards do not."""

    def parameters(self, state: Any) -> Any:
        """A kernel in columns, by metadata that takes it for one in rows."""
        layer = state.parameters["dense_1"]
        columns = jax.device_put(layer["kernel"], NamedSharding(self.mesh, OTHERWISE))
        held = [shard.data for shard in columns.addressable_shards]
        shown = jax.make_array_from_single_device_arrays(columns.shape, Credulous(self.mesh, OTHERWISE), held)
        return state.parameters | {"dense_1": layer | {"kernel": shown}}


class LabelsEverywhere(JaxForm):
    """A loader that shards the inputs, and forgets the labels: they are so small."""

    def shard_batch(self, batch: Any) -> Any:
        """All labels on every device."""
        whole = jax.device_put(batch["y"], self.on_mesh(PartitionSpec()))
        return super().shard_batch(batch) | {"y": whole}


plant("parameter_born_in_columns", ParameterBornOtherwise, fsdp.PAGE, DATA, "SHD-1")
plant("momentum_born_in_columns", MomentumBornOtherwise, fsdp.PAGE, DATA, "SHD-2")
plant("equivalence_of_shardings_wrong", ShownOtherwise, fsdp.PAGE, DATA, "SHD-3")
plant("labels_everywhere", LabelsEverywhere, data_parallel.PAGE, DATA, "SHD-4")
plant("inert_annotation_unnoticed", Inert, data_parallel.PAGE, DATA, "SHD-6")


class Accompanied(NamedTuple):
    """A state with a statistic, which is neither a parameter nor the optimizer's."""

    parameters: Any
    optimizer: Any
    statistic: Any


class Accompanies(JaxForm):
    """A trainer that keeps a running statistic."""

    @cached_property
    def state_specs(self) -> Any:
        """A scalar on every device."""
        return Accompanied(*super().state_specs, PartitionSpec())

    @cached_property
    def start(self) -> Any:
        """Nothing counted yet."""
        return self.compile(
            lambda w: Accompanied(w, self.transform.init(w), jnp.zeros(())),
            donate_argnums=0,
            out_shardings=self.on_mesh(self.state_specs),
        )

    def step(self, state: Any, batch: Any) -> Any:
        """The sum of the losses."""
        trained, metrics = super().step(state, batch)
        return Accompanied(*trained, state.statistic + metrics["loss"]), metrics


class NothingOfNothing(Accompanies):
    """The share of skipped examples among those seen: none of none, at first, and so for ever."""

    def step(self, state: Any, batch: Any) -> Any:
        """0/0."""
        trained, metrics = super().step(state, batch)
        return trained._replace(statistic=state.statistic + 0 * metrics["loss"] / state.statistic), metrics


class Wanders(Accompanies):
    """A loop that takes the statistic to one device to log it, and brings it back before the next step."""

    @cached_property
    def train_step(self) -> Any:
        """Around the compiled one."""
        compiled, whole = super().train_step, self.on_mesh(PartitionSpec())

        class Step:
            lower = staticmethod(compiled.lower)

            def __call__(self, state: Any, batch: Any) -> Any:
                back = jax.device_put(state.statistic, whole)
                state, metrics = compiled(state._replace(statistic=back), batch)
                return state._replace(statistic=jax.device_put(state.statistic, jax.devices()[0])), metrics

        return Step()


plant("healthy_with_statistic", Accompanies, data_parallel.PAGE, DATA)
plant("statistic_of_nothing", NothingOfNothing, data_parallel.PAGE, DATA, "NUM-10")
plant("statistic_wanders", Wanders, data_parallel.PAGE, DATA, "SHD-5")
