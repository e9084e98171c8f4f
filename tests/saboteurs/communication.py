"""Faults in what the compiler is told, and so in what moves."""

from __future__ import annotations

from typing import Any

import jax
from jax.lax import optimization_barrier, with_sharding_constraint
from jax.sharding import PartitionSpec

from reference_impl.forms.annotated import JaxForm
from reference_impl.mapping import Mapping
from reference_impl.models.layout import Layout
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
    tensor_parallel,
)
from tests.saboteurs.planting import BOTH, DATA, MODEL, plant


class GathersBatch(JaxForm):
    """A forward pass that computes on whole batches everywhere."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """All-gathers the examples first."""
        whole = with_sharding_constraint(batch, jax.tree.map(lambda _: PartitionSpec(), batch))
        return self.network.loss(parameters, whole, Layout())


class StorageOnly(JaxForm):
    """Storage is annotated, as most tutorials have it, and the compiler moves what it likes: activations."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """No constraint on what computes."""
        return self.network.loss(parameters, batch, Layout())


class GathersParameters(JaxForm):
    """Tensor parallelism that brings the parameters to the activations."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """All-gathers every split kernel."""
        whole = with_sharding_constraint(parameters, Mapping().specs(self.network.axes))
        return self.network.loss(whole, batch, Layout())


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


plant("healthy_tensor_parallel", JaxForm, tensor_parallel.PAGE, MODEL)
plant("forward_gathers_batch", GathersBatch, data_parallel.PAGE, DATA, "COM-1", "COM-10")
plant("fsdp_by_storage_alone", StorageOnly, fsdp.PAGE, DATA, "COM-4", "COM-11")
plant("fsdp_tensor_parallel_by_storage_alone", StorageOnly, fsdp_tensor_parallel.PAGE, BOTH, "COM-4", "COM-6")
plant("tensor_parallel_gathers_parameters", GathersParameters, tensor_parallel.PAGE, MODEL, "COM-5", "COM-10")
plant("inputs_permuted", PermutesInputs, data_parallel.PAGE, DATA, "COM-10")
