"""Planted faults: an implementation for ``pytest suites/ --impl tests.saboteurs``.

Each strategy has one fault, is named after it, and stands in `CAUGHT_BY` beside the clauses that must catch it.
``healthy_*`` are the same constructions without a fault, and must pass.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.lax import optimization_barrier, pmean, psum, with_sharding_constraint
from jax.sharding import PartitionSpec

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form, TrainState
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.mapping import Mapping, make_mesh
from reference_impl.models.mlp import Whole
from reference_impl.strategies import (
    data_parallel,
    data_parallel_shard_map,
    fsdp,
    fsdp_shard_map,
    fsdp_tensor_parallel,
    single_device,
    tensor_parallel,
)
from reference_impl.truth import Momentum

ONE, DATA, MODEL, BOTH = {"data": 1}, {"data": 8}, {"model": 8}, {"data": 2, "model": 4}

CAUGHT_BY: dict[str, set[str]] = {}
"""Strategy name to the clauses of which each must fail; empty for the healthy ones."""

_BUILT: list[Form] = []


def strategies() -> Iterator[Form]:
    """The healthy ones, and one strategy per fault."""
    return iter(_BUILT)


def plant(name: str, form: type[Form], page: Any, axes: dict[str, int], *caught_by: str, **members: Any) -> None:
    """One strategy: ``page`` under another name, with some of its members replaced."""
    renamed = ModuleType(name)
    renamed.__dict__.update({key: value for key, value in vars(page).items() if not key.startswith("__")} | members)
    _BUILT.append(form(renamed, axes, Momentum()))
    CAUGHT_BY[name] = set(caught_by)


class Unchecked(Manual):
    """A manual form without JAX's own check that replicated outputs are replicated: faults reach the suites."""

    check_vma = False


def synchronize_by(synchronize: Any) -> Any:
    """Data parallelism whose gradients are synchronized another way."""

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(model.loss)(parameters, batch, Whole())
        return pmean(loss, "data"), synchronize(gradients)

    return loss_and_gradients


def each(function: Any) -> Any:
    """``function`` on every gradient leaf."""
    return lambda gradients: jax.tree.map(function, gradients)


def all_but_one(gradients: Any) -> Any:
    """One leaf is forgotten."""
    return pmean(gradients, "data") | {"dense_3": gradients["dense_3"]}


def rolled(gradients: Any) -> Any:
    """One kernel's gradient is shifted by a row."""
    synchronized = pmean(gradients, "data")
    layer = synchronized["dense_1"]
    return synchronized | {"dense_1": layer | {"kernel": jnp.roll(layer["kernel"], 1, axis=0)}}


def in_bf16(gradient: Any) -> Any:
    """Reduced in half the bytes, and an eighth of the digits."""
    return pmean(gradient.astype(jnp.bfloat16), "data").astype(jnp.float32)


def twice(gradient: Any) -> Any:
    """Reduced, and reduced again: the same mean, double the bytes."""
    return pmean(optimization_barrier(pmean(gradient, "data")), "data")


def drifting(gradient: Any) -> Any:
    """Each device adds a little of its own."""
    return pmean(gradient, "data") + 1e-9 * jax.lax.axis_index("data")


HEALTHY = {"loss_and_gradients": synchronize_by(each(lambda g: pmean(g, "data")))}
plant("healthy_data_parallel", Unchecked, data_parallel_shard_map, DATA, **HEALTHY)
for name, synchronize, clauses in (
    ("missing_reduction", lambda gradients: gradients, ("COM-2", "NUM-2", "NUM-6")),
    ("sum_for_mean", each(lambda g: psum(g, "data")), ("NUM-2", "NUM-3")),
    ("one_unreduced_leaf", all_but_one, ("COM-2", "NUM-2")),
    ("gradient_rolled_by_a_row", rolled, ("NUM-2",)),
    ("bf16_reduction", each(in_bf16), ("NUM-2",)),
    ("reduced_twice", each(twice), ("COM-2", "COM-11")),
    ("drifting_replicas", each(drifting), ("NUM-6",)),
):
    harm = {"loss_and_gradients": synchronize_by(synchronize)}
    plant(name, Unchecked, data_parallel_shard_map, DATA, *clauses, **harm)


def gathers_twice(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP that gathers what it has gathered."""
    again = jax.tree.map(optimization_barrier, dict(parameters))
    first = fsdp_shard_map.each(fsdp_shard_map.gather, again, model)
    loss, gradients = fsdp_shard_map.loss_and_gradients(model, parameters, batch)
    return loss + 0 * pmean(sum(jnp.sum(w) for w in jax.tree.leaves(first)), "data"), gradients


def scatter_by_slicing(gradient: Any, axes: Any) -> Any:
    """All-reduce, then keep the own shard: the right numbers, twice the traffic."""
    mean = pmean(gradient, "data")
    if "embed" not in axes:
        return mean
    dimension = axes.index("embed")
    size = gradient.shape[dimension] // jax.lax.axis_size("data")
    return jax.lax.dynamic_slice_in_dim(mean, jax.lax.axis_index("data") * size, size, dimension)


def all_reduces(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP whose gradients are all-reduced."""
    whole = fsdp_shard_map.each(fsdp_shard_map.gather, parameters, model)
    loss, gradients = jax.value_and_grad(model.loss)(whole, batch, Whole())
    return pmean(loss, "data"), fsdp_shard_map.each(scatter_by_slicing, gradients, model)


plant("healthy_fsdp_by_hand", Unchecked, fsdp_shard_map, DATA)
plant("redundant_all_gather", Unchecked, fsdp_shard_map, DATA, "COM-4", "COM-11", loss_and_gradients=gathers_twice)
plant("all_reduce_for_reduce_scatter", Unchecked, fsdp_shard_map, DATA, "COM-4", loss_and_gradients=all_reduces)


class Scales(JaxForm):
    """A gradient that is a thousandth too long."""

    def loss_and_gradients(self, parameters: Any, batch: Any) -> Any:
        """Adam would never show it."""
        loss, gradients = super().loss_and_gradients(parameters, batch)
        return loss, jax.tree.map(lambda g: g * 1.001, gradients)


class WrongLoss(JaxForm):
    """Reports a loss that it does not train on."""

    def step(self, state: Any, batch: Any) -> Any:
        """A tenth of a percent too small."""
        state, metrics = super().step(state, batch)
        return state, {"loss": metrics["loss"] * 0.999}


class ForgetsMomentum(JaxForm):
    """The optimizer starts anew at every step: the first one looks right."""

    def update(self, state: TrainState, gradients: Any) -> TrainState:
        """Momentum zeroed."""
        return super().update(TrainState(state.parameters, self.transform.init(state.parameters)), gradients)


class StartsDifferently(JaxForm):
    """Two runs from the same values are not the same."""

    starts = 0

    def load(self, parameters: Any) -> Any:
        """The last bits of the start values depend on how often a run was started."""
        type(self).starts += 1
        state = super().load(parameters)
        return TrainState(jax.tree.map(lambda w: w * (1 + 1e-7 * self.starts), state.parameters), state.optimizer)


class NotANumber(JaxForm):
    """One value is not a number, where nothing looks at it."""

    def step(self, state: Any, batch: Any) -> Any:
        """NaN in the momentum of the last bias."""
        state, metrics = super().step(state, batch)
        return jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan) if leaf.shape == (10,) else leaf, state), metrics


class OtherDecay(NnxForm):
    """An NNX form that trains with another momentum than the plain JAX one."""

    def create_optimizer(self, model: Any) -> Any:
        """0.8 for 0.9."""
        return NnxForm(self.page, self.mesh_axes, Momentum(decay=0.8)).create_optimizer(model)


plant("gradient_scaled_on_one_device", Scales, single_device, ONE, "NUM-1", "NUM-2")
plant("wrong_loss", WrongLoss, data_parallel, DATA, "NUM-4")
plant("momentum_forgotten", ForgetsMomentum, data_parallel, DATA, "NUM-3")
plant("runs_differ", StartsDifferently, single_device, ONE, "NUM-5")
plant("not_a_number", NotANumber, data_parallel, DATA, "NUM-10")
plant("frameworks_disagree", JaxForm, data_parallel, DATA)
CAUGHT_BY["frameworks_disagree"] = {"NUM-8", "NUM-3"}
_BUILT.append(OtherDecay(_BUILT[-1].page, DATA, Momentum()))


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


plant("shard_0_everywhere", FirstShardEverywhere, data_parallel, DATA, "SHD-4", "NUM-2")
plant("whole_batch_everywhere", WholeBatchEverywhere, data_parallel, DATA, "SHD-4")
plant("truncating_loader", TruncatingLoader, data_parallel, DATA, "ERR-1")
plant("shrinking_mesh", ShrinkingMesh, data_parallel, DATA, "ERR-1")


def storing(**harm: Any) -> type[JaxForm]:
    """A form that stores its state otherwise than its contract says: mappings of the page, or one leaf's spec."""

    class Storing(JaxForm):
        @cached_property
        def state_specs(self) -> Any:
            kernel = harm.get("kernel")
            really = ModuleType("really")
            really.__dict__.update(vars(self.page) | harm)
            specs = JaxForm(really, self.mesh_axes, self.optimizer).state_specs
            if kernel is not None:
                specs.parameters["dense_1"]["kernel"] = kernel
            return specs

    return Storing


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


class Inert(NnxForm):
    """Annotated by a key that NNX takes and ignores."""

    def create_model(self, key: Any) -> Any:
        """``sharding_metadata`` raises nothing and does nothing."""
        unannotated = ModuleType("unannotated")
        unannotated.__dict__.update(vars(self.page) | {"PARAMETERS": Mapping()})
        model = NnxForm(unannotated, self.mesh_axes, self.optimizer).create_model(key)
        for _, parameter in nnx.iter_graph(model):
            if isinstance(parameter, nnx.Param):
                parameter.set_metadata(sharding_metadata=("data",))
        return model


plant("healthy_fsdp", JaxForm, fsdp, DATA)
plant("healthy_nnx_fsdp", NnxForm, fsdp, DATA)
plant("replicated_momentum", storing(OPTIMIZER=Mapping()), fsdp, DATA, "SHD-2", "MEM-1")
plant("unsharded_parameter", storing(kernel=PartitionSpec()), fsdp, DATA, "SHD-1", "SHD-6", "MEM-1")
plant("swapped_axes", storing(kernel=PartitionSpec("model", "data")), fsdp_tensor_parallel, BOTH, "SHD-1", "SHD-3")
plant("everything_whole", storing(PARAMETERS=Mapping(), OPTIMIZER=Mapping()), fsdp, DATA, "MEM-4", "MEM-1", "SHD-6")
plant("layout_changes", ReturnsWhole, fsdp, DATA, "SHD-5")
plant("inert_annotation", Inert, fsdp, DATA, "SHD-6", "SHD-1")


class GathersBatch(JaxForm):
    """A forward pass that computes on whole batches everywhere."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """All-gathers the examples first."""
        whole = with_sharding_constraint(batch, jax.tree.map(lambda _: PartitionSpec(), batch))
        return self.network.loss(parameters, whole, Whole())


class StorageOnly(JaxForm):
    """Storage is annotated, as most tutorials have it, and the compiler moves what it likes: activations."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """No constraint on what computes."""
        return self.network.loss(parameters, batch, Whole())


class GathersParameters(JaxForm):
    """Tensor parallelism that brings the parameters to the activations."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """All-gathers every split kernel."""
        whole = with_sharding_constraint(parameters, Mapping().specs(self.network.axes))
        return self.network.loss(whole, batch, Whole())


class PermutesInputs(JaxForm):
    """A shift of examples between neighbours, and back."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """Two collective-permutes of the inputs."""

        def there_and_back(x: Any) -> Any:
            around = [(i, (i + 1) % 8) for i in range(8)]
            there = optimization_barrier(jax.lax.ppermute(x, "data", around))
            return jax.lax.ppermute(there, "data", [(j, i) for i, j in around])

        spec = self.batch_specs["x"]
        shift = jax.shard_map(there_and_back, mesh=self.mesh, in_specs=spec, out_specs=spec)
        return super().forward(parameters, dict(batch) | {"x": shift(batch["x"])})


plant("healthy_tensor_parallel", JaxForm, tensor_parallel, MODEL)
plant("forward_gathers_batch", GathersBatch, data_parallel, DATA, "COM-1", "COM-10")
plant("fsdp_by_storage_alone", StorageOnly, fsdp, DATA, "COM-4", "COM-11")
plant("fsdp_tensor_parallel_by_storage_alone", StorageOnly, fsdp_tensor_parallel, BOTH, "COM-4", "COM-6")
plant("tensor_parallel_gathers_parameters", GathersParameters, tensor_parallel, MODEL, "COM-5", "COM-10")
plant("inputs_permuted", PermutesInputs, data_parallel, DATA, "COM-10")


class KeepsState(JaxForm):
    """A step that does not donate, and so holds two states."""

    @cached_property
    def train_step(self) -> Any:
        """Without ``donate_argnums``."""
        return self.compile(self.step, out_shardings=(self.on_mesh(self.state_specs), None))


class WeakAtFirst(JaxForm):
    """A state that comes back with another type than it went in with."""

    def load(self, parameters: Any) -> Any:
        """A weakly typed momentum; the step returns a strongly typed one."""
        state = super().load(parameters)
        weak = jax.tree.map(lambda m: jax.device_put(jnp.full(m.shape, 0.0), m.sharding), state.optimizer)
        return TrainState(state.parameters, weak)


class CallsBack(JaxForm):
    """A step that tells the host how it is doing."""

    def step(self, state: Any, batch: Any) -> Any:
        """And waits for it."""
        state, metrics = super().step(state, batch)
        jax.debug.callback(lambda loss: None, metrics["loss"])
        return state, metrics


class Promotes(JaxForm):
    """A forward pass that widens bf16 without being told to."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """bf16 · f32 → f32."""
        return super().forward(parameters, batch) + 0 * jnp.sum(jnp.ones(2, jnp.bfloat16) * jnp.ones(2, jnp.float32))


class FeedsFromHost(JaxForm):
    """A step that is handed a host array every time."""

    @cached_property
    def train_step(self) -> Any:
        """A scale of the inputs comes along as NumPy."""

        def scaled_step(state: Any, batch: Any, scale: Any) -> Any:
            return self.step(state, dict(batch) | {"x": batch["x"] * scale})

        scaled = self.compile(scaled_step, donate_argnums=0, out_shardings=(self.on_mesh(self.state_specs), None))
        step = super().train_step

        class Step:
            lower = staticmethod(step.lower)

            def __call__(self, state: Any, batch: Any) -> Any:
                return scaled(state, batch, np.ones(1, np.float32))

        return Step()


class Uncounted(JaxForm):
    """A compiler that keeps its FLOPs to itself."""

    @cached_property
    def train_step(self) -> Any:
        """The cost analysis is empty."""
        step = super().train_step

        class Step:
            __call__ = staticmethod(step)

            def lower(self, *arguments: Any) -> Any:
                compiled = step.lower(*arguments).compile()
                silent = SimpleNamespace(
                    as_text=compiled.as_text, memory_analysis=compiled.memory_analysis, cost_analysis=dict
                )
                return SimpleNamespace(compile=lambda: silent)

        return Step()


class Crashes(JaxForm):
    """Takes its process down, as the CPU backend of jaxlib 0.10.2 does on some programs."""

    def load(self, parameters: Any) -> Any:
        """SIGSEGV."""
        os.kill(os.getpid(), signal.SIGSEGV)


plant("state_kept", KeepsState, data_parallel, DATA, "MEM-2")
plant("second_step_compiles", WeakAtFirst, data_parallel, DATA, "CMP-1")
plant("host_callback", CallsBack, data_parallel, DATA, "CMP-2")
plant("implicit_promotion", Promotes, data_parallel, DATA, "CMP-2")
plant("fed_from_host", FeedsFromHost, data_parallel, DATA, "CMP-2")
plant("flops_not_counted", Uncounted, data_parallel, DATA, "CMP-3")
plant("crash", Crashes, data_parallel, DATA, "NUM-2", "SHD-1", "COM-2", "MEM-1", "CMP-1", "ERR-1")
