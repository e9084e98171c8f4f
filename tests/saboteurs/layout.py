"""Faults in where batches and state lie."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from flax import linen, nnx
from jax.lax import optimization_barrier, with_sharding_constraint
from jax.sharding import PartitionSpec

from meshproof.contract import leaves
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState, abstract_key
from reference_impl.forms.explicit import Explicit
from reference_impl.forms.linen_form import LinenForm, boxed_parameters
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.mapping import Mapping, make_mesh
from reference_impl.models.mlp import MLP
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
)
from tests.saboteurs.planting import BOTH, DATA, plant


class FirstShardEverywhere(JaxForm):
    """A loader that gives every process the first process's examples: the metadata is right, the data is not."""

    def shard_batch(self, batch: Any) -> Any:
        """Shard 0, eight times."""
        share = self.batch_size // self.mesh.size
        return super().shard_batch({field: np.concatenate([v[:share]] * self.mesh.size) for field, v in batch.items()})


class WholeBatchEverywhere(JaxForm):
    """A loader that forgets to shard."""

    def shard_batch(self, batch: Any) -> Any:
        """Every device gets everything."""
        return jax.device_put(dict(batch), self.on_mesh(PartitionSpec()))


class TruncatingLoader(JaxForm):
    """A loader that drops what does not divide, without a word."""

    def shard_batch(self, batch: Any) -> Any:
        """All whole shares."""
        return super().shard_batch({f: v[: len(v) // self.mesh.size * self.mesh.size] for f, v in batch.items()})


class ShrinkingMesh(JaxForm):
    """Makes do with the devices that there are, without a word."""

    def make_mesh(self, devices: Any) -> Any:
        """As many as there are."""
        return make_mesh(devices, {"data": min(len(devices), 8)})


plant("shard_0_everywhere", FirstShardEverywhere, data_parallel.PAGE, DATA, "SHD-4", "NUM-2")
plant("whole_batch_everywhere", WholeBatchEverywhere, data_parallel.PAGE, DATA, "SHD-4")
plant("truncating_loader", TruncatingLoader, data_parallel.PAGE, DATA, "ERR-1")
plant("shrinking_mesh", ShrinkingMesh, data_parallel.PAGE, DATA, "ERR-1")


def storing(kernel: PartitionSpec | None = None, **mappings: Mapping) -> type[JaxForm]:
    """A form that stores its state otherwise than its contract says: by other mappings, or one kernel's spec."""

    class Storing(JaxForm):
        @cached_property
        def state_specs(self) -> Any:
            specs = JaxForm(replace(self.page, **mappings), self.mesh_axes, self.optimizer).state_specs
            if kernel is not None:
                specs.parameters["dense_1"]["kernel"] = kernel
            return specs

    return Storing


class KeepsMomentumInHostMemory(JaxForm):
    """An optimizer that is offloaded: every step fetches it, and brings it back."""

    def on_mesh(self, specs: Any) -> Any:
        """A whole state's momentum lies in the host."""
        placed = super().on_mesh(specs)
        if not isinstance(placed, TrainState):
            return placed
        return TrainState(
            placed.parameters, jax.tree.map(lambda s: s.with_memory_kind("pinned_host"), placed.optimizer)
        )

    def step(self, state: Any, batch: Any) -> Any:
        """On the device as usual."""
        momentum = jax.device_put(state.optimizer, super().on_mesh(self.state_specs.optimizer))
        return super().step(TrainState(state.parameters, momentum), batch)


class ShowsNothing(JaxForm):
    """Canonical trees without a leaf: nothing to see, and so nothing to object to."""

    def parameters(self, state: Any) -> Any:
        """Empty."""
        return {}

    def optimizer_state(self, state: Any) -> Any:
        """Empty."""
        return {}


class ReturnsWhole(JaxForm):
    """A step whose parameters come back whole."""

    @cached_property
    def train_step(self) -> Any:
        """Sharded in, whole out."""
        specs = self.state_specs
        whole = jax.tree.map(
            lambda _: PartitionSpec(), specs.parameters, is_leaf=lambda s: isinstance(s, PartitionSpec)
        )
        return self.compile(self.step, out_shardings=(self.on_mesh(TrainState(whole, specs.optimizer)), None))


class Birth:
    """A function that can be called and lowered."""

    def __init__(self, call: Any, lower: Any) -> None:
        self.call, self.lower = call, lower

    def __call__(self, key: Any) -> Any:
        """Run it."""
        return self.call(key)


class PlacedAfterwards(JaxForm):
    """A state that is made whole, and then placed: what fits in shards only is never born."""

    @cached_property
    def init(self) -> Any:
        """On every device, then sharded."""
        whole = self.compile(lambda key: TrainState(w := self.network.init(key), self.transform.init(w)))
        return Birth(lambda key: jax.device_put(whole(key), self.on_mesh(self.state_specs)), whole.lower)


class OldGenerator(JaxForm):
    """Sharded from birth, but of random bits that cannot be drawn in parts."""

    @cached_property
    def init(self) -> Any:
        """With JAX's generator as it once was by default."""
        old = jax.threefry_partitionable(False)
        return Birth(old(super().init), old(super().init.lower))


class DrawsWhole(Explicit):
    """On explicit axes a draw that is told no layout is whole on every device, whatever becomes of it."""

    @cached_property
    def init_parameters(self) -> Any:
        """As on automatic axes, where the compiler draws in parts."""
        return self.compile(self.network.init, out_shardings=self.on_mesh(self.state_specs.parameters))


class DrawsSmallWhole(JaxForm):
    """Draws everything but the first layer whole: none of it is larger than a shard of that."""

    @cached_property
    def init(self) -> Any:
        """The draws of the other layers are constrained to be whole before they are cut."""
        whole = self.on_mesh(PartitionSpec())

        def drawn(leaf: jax.Array) -> jax.Array:
            return optimization_barrier(with_sharding_constraint(leaf, whole))

        def create(key: Any) -> TrainState:
            layers = self.network.init(key)
            layers = {
                name: leaves if name == "dense_0" else jax.tree.map(drawn, leaves) for name, leaves in layers.items()
            }
            return TrainState(layers, self.transform.init(layers))

        return self.compile(create, out_shardings=self.on_mesh(self.state_specs))


class Inert(NnxForm):
    """Annotated by a key that NNX takes and ignores."""

    def create_model(self, key: Any) -> Any:
        """``sharding_metadata`` raises nothing and does nothing."""
        unannotated = replace(self.page, parameters=Mapping())
        model = NnxForm(unannotated, self.mesh_axes, self.optimizer).create_model(key)
        for _, parameter in nnx.iter_graph(model):
            if isinstance(parameter, nnx.Param):
                parameter.set_metadata(sharding_metadata=("data",))
        return model


class RulesComeLate(NnxForm):
    """Annotated with a logical axis and the rule for it, once the arrays are there."""

    def create_model(self, key: Any) -> Any:
        """They are whole until a step lays them out."""
        unannotated = replace(self.page, parameters=Mapping())
        model = NnxForm(unannotated, self.mesh_axes, self.optimizer).create_model(key)
        for path, parameter in nnx.iter_graph(model):
            if path[-1:] == ("kernel",):
                parameter.set_metadata(out_sharding=("rows",), sharding_rules=(("rows", "data"),))
        return model


class FirstRuleWins(JaxForm):
    """Rules of which the second to claim a mesh axis is dropped, without a word."""

    def lay_out(self, rules: Any) -> Any:
        """What it claimed is whole on every device."""
        first = {mesh_axis: logical for logical, mesh_axis in reversed(rules.items())}
        return super().lay_out({logical: mesh_axis for mesh_axis, logical in first.items()})


class LastRuleWins(NnxForm):
    """A table that is handed to NNX as it comes."""

    def resolve(self, table: Any) -> Any:
        """NNX makes a dict of it."""
        names = {name: name for _, axes in leaves(self.logical_axes) for name in axes}
        return self.by_rules(Mapping(**names), table)


class UnmappedIsWhole(LinenForm):
    """A table that is handed to Linen as it comes."""

    def resolve(self, table: Any) -> Any:
        """What it does not name is replicated, without a word."""
        boxed = jax.eval_shape(lambda key: boxed_parameters(self, self.module, key), abstract_key())
        return linen.logical_to_mesh(linen.get_partition_spec(boxed), tuple(table))


class ResolvesByTheContext(JaxForm):
    """Mesh axes that the context does not have are left out, so that one table serves every mesh."""

    def resolve(self, table: Any) -> Any:
        """Without a context there is none."""
        there = jax.sharding.get_abstract_mesh().axis_names
        return super().resolve([(name, axis if axis in there else None) for name, axis in table])


class ResolvedOnce(JaxForm):
    """The layout of the first table is kept, as by a jitted function that reads its rules from a context."""

    @cached_property
    def kept(self) -> list[Any]:
        """That layout."""
        return []

    def resolve(self, table: Any) -> Any:
        """Of the first table."""
        layout = super().resolve(table)
        self.kept.append(layout)
        return self.kept[0]


plant("healthy_fsdp", JaxForm, fsdp.PAGE, DATA)
plant("healthy_nnx_fsdp", NnxForm, fsdp.PAGE, DATA)
plant("replicated_momentum", storing(optimizer=Mapping()), fsdp.PAGE, DATA, "SHD-2", "MEM-1")
plant("unsharded_parameter", storing(kernel=PartitionSpec()), fsdp.PAGE, DATA, "SHD-1", "SHD-6", "MEM-1")
plant("swapped_axes", storing(kernel=PartitionSpec("model", "data")), fsdp_tensor_parallel.PAGE, BOTH, "SHD-1", "SHD-3")
plant("momentum_in_host_memory", KeepsMomentumInHostMemory, data_parallel.PAGE, DATA, "SHD-2", "CMP-2")
plant(
    "everything_whole", storing(parameters=Mapping(), optimizer=Mapping()), fsdp.PAGE, DATA, "MEM-4", "MEM-1", "SHD-6"
)
plant("nothing_shown", ShowsNothing, fsdp.PAGE, DATA, "SHD-1", "SHD-2", "NUM-3")
plant("placed_afterwards", PlacedAfterwards, fsdp.PAGE, DATA, "MEM-3")
plant("old_generator", OldGenerator, fsdp.PAGE, DATA, "MEM-3")
plant("drawn_whole", DrawsWhole, fsdp.PAGE, DATA, "MEM-3")
plant(
    "small_kernels_drawn_whole", DrawsSmallWhole, fsdp.PAGE, DATA, "MEM-3", network=MLP(widths=(784, 128, 64, 128, 10))
)
plant("layout_changes", ReturnsWhole, fsdp.PAGE, DATA, "SHD-5")
plant("first_rule_wins", FirstRuleWins, fsdp.PAGE, DATA, "SHD-8")
plant("last_rule_wins", LastRuleWins, fsdp.PAGE, DATA, "SHD-10")
plant("unmapped_is_whole", UnmappedIsWhole, fsdp.PAGE, DATA, "SHD-10")
plant("resolved_by_the_context", ResolvesByTheContext, fsdp.PAGE, DATA, "SHD-10")
plant("resolved_once", ResolvedOnce, fsdp.PAGE, DATA, "SHD-10")
plant("inert_annotation", Inert, fsdp.PAGE, DATA, "SHD-6", "SHD-1")
plant("rules_come_late", RulesComeLate, fsdp.PAGE, DATA, "SHD-1", "SHD-6")
