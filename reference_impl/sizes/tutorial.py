"""The worked examples of the tutorial "Distributed Training Overview", at their own sizes and on their own meshes.

    example                     model                                        mesh
    ResNet-50                   a CNN of as many parameters, 26.3 million    data=8
    GPT-2 medium                24 blocks of width 1,024, 355 million        data=8; data=4, model=2
    GPT-3                       `gpt_175b`, 96 blocks of width 12,288        stage=8, data=32, model=4
    Vision Transformer          40 blocks of width 1,408, 1.0 billion        data=16; stage=4
    FSDP + data parallelism     `gpt_7b`, 32 blocks of width 4,096           replica=16, data=8
    pipeline + tensor parallel  `gpt_7b`                                     stage=4, model=8
    3D                          `gpt_175b`                                   stage=8, data=16, model=8

A block of a vision transformer is that of a GPT but for the causal mask, which moves nothing: its 256 patches stand as
tokens, of a vocabulary as large as its classes. What is in stages is in float32, each stage recomputed by its schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reference_impl.forms.base import Form
from reference_impl.forms.pipelined import Pipelined
from reference_impl.models.cnn import CNN
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.page import PipelinePage
from reference_impl.sizes import gpt_7b, gpt_175b
from reference_impl.sizes.scaled import Scaled
from reference_impl.sizes.stacked import Annotated, InSlices, form
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    hsdp,
    parallel_3d,
    parallel_3d_fsdp,
    pipeline_gpipe,
    pipeline_tensor_parallel,
    sequence_parallel,
)
from reference_impl.truth import Adam, Momentum

RESNET_50 = CNN(size=224, channels=(3, 64, 128, 256, 512, 1024), classes=400)
GPT_2_MEDIUM = ScannedGPT(vocab=50257, length=1024, embed=1024, heads=16, head_dim=64, mlp=4096, blocks=24)
VIT_1B = ScannedGPT(vocab=1000, length=256, embed=1408, heads=16, head_dim=88, mlp=6144, blocks=40)


@dataclass(frozen=True)
class InStages(Pipelined):
    """A pipeline of a size that is only compiled."""

    batches = Annotated.batches


def strategies() -> Iterator[Form]:
    """One form of each mesh: 32 images a device; 16 sequences, as fit 40 GB; one sequence in each of 16 microbatches,
    and 32 images in each of the tutorial's 8."""
    yield Scaled(data_parallel.PAGE, {"data": 8}, Momentum(), RESNET_50, variant="resnet_50", batch_size=256)
    yield form(Annotated, data_parallel.PAGE, {"data": 8}, GPT_2_MEDIUM, examples=16)
    yield form(Annotated, sequence_parallel.PAGE, {"data": 4, "model": 2}, GPT_2_MEDIUM, examples=32)
    yield in_stages(parallel_3d_fsdp.PAGE, {"stage": 8, "data": 32, "model": 4}, gpt_175b.TRANSFORMER)
    yield form(Annotated, fsdp.PAGE, {"data": 16}, VIT_1B, examples=32)
    yield InStages(pipeline_gpipe.PAGE, {"stage": 4}, Adam(), VIT_1B, batch_size=256, microbatches=8)
    yield form(InSlices, hsdp.PAGE, {"replica": 16, "data": 8}, gpt_7b.TRANSFORMER, examples=2)
    yield in_stages(pipeline_tensor_parallel.PAGE, {"stage": 4, "model": 8}, gpt_7b.TRANSFORMER)
    yield in_stages(parallel_3d.PAGE, {"stage": 8, "data": 16, "model": 8}, gpt_175b.TRANSFORMER)


def in_stages(page: PipelinePage, mesh: dict[str, int], network: ScannedGPT) -> Form:
    """A pipeline of 16 microbatches."""
    return InStages(page, mesh, Adam(), network, batch_size=16 * mesh.get("data", 1), microbatches=16)
