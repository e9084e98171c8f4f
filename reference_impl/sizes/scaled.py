"""What the larger sizes share: their meshes, and forms that NumPy could not judge in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from meshproof.contract import Batch
from reference_impl.forms.annotated import JaxForm
from reference_impl.models import Model
from reference_impl.modifiers import Modified
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import data_parallel, fsdp, fsdp_tensor_parallel, single_device
from reference_impl.truth import GPTTruth

ONE = {"data": 1}
DEVICES = (2, 4, 8)
TOKENS = 4_096
"""The tokens that batches hold, of a larger vocabulary. Drawn from all 50,257 a step has too few of each: on an H200
the loss of `gpt2_124m` went from 10.98 to 10.99 in ten steps, and judged nothing."""

ALONG_DATA = (data_parallel.PAGE, fsdp.PAGE)


@dataclass(frozen=True)
class Scaled(JaxForm):
    """A form without a truth in NumPy: it is judged by its own single device in float32."""

    truth: ClassVar[None] = None  # type: ignore[assignment]

    def batches(self, count: int) -> Iterable[Batch]:
        """``count`` host batches, drawn by the truth of the model that is not modified, of its first `TOKENS`."""
        truth = plain(self.network).truth(self.optimizer)
        if isinstance(truth, GPTTruth):
            truth = replace(truth, vocab=min(truth.vocab, TOKENS))
        return truth.batches(count, self.batch_size)

    def single_device(self, dtype: str) -> Scaled:
        """The same on one device, its blocks recomputed: float32 takes twice the memory, and has no fused attention.

        Raises ``ValueError`` for another dtype than float32.
        """
        if dtype != "float32":
            raise ValueError(f"single_device({dtype!r}): expected 'float32'; nothing so large is trained in float64")
        network = in_float32(self.network)
        network = Rematerialised(network) if network.segments else network
        return replace(self, page=single_device.PAGE, mesh_axes=ONE, network=network)


def plain(network: Model) -> Model:
    """The model under its modifiers."""
    return plain(network.model) if isinstance(network, Modified) else network


def in_float32(network: Model) -> Model:
    """The model without its mixed precision, otherwise modified as it is."""
    if isinstance(network, MixedPrecision):
        return in_float32(network.model)
    return replace(network, model=in_float32(network.model)) if isinstance(network, Modified) else network


def on_meshes(form: JaxForm, tensor_parallel: bool = True) -> Iterator[JaxForm]:
    """A form on one device; then data-parallel, fully sharded and, if asked, with tensors split in two, on more."""
    yield form
    for devices in DEVICES:
        for page in ALONG_DATA:
            yield replace(form, page=page, mesh_axes={"data": devices})
        if tensor_parallel:
            yield replace(form, page=fsdp_tensor_parallel.PAGE, mesh_axes={"data": devices // 2, "model": 2})
