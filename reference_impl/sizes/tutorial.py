"""The worked examples of the tutorial "Distributed Training Overview", at their own sizes and on their own meshes.

    example             model                                            mesh
    ResNet-50           a CNN of as many parameters, 26.3 million        data=8
    GPT-2 medium        24 blocks of width 1,024, 355 million            data=8; data=4, model=2
    GPT-3               `gpt_175b`, 96 blocks of width 12,288            data=256, model=4
    Vision Transformer  40 blocks of width 1,408, 1.0 billion            data=16
    FSDP + data         `gpt_7b`                                         replica=8, data=16

A block of a vision transformer is that of a GPT but for the causal mask, which moves nothing: its 256 patches stand as
tokens, of a vocabulary as large as its classes.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.cnn import CNN
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes import gpt_7b, gpt_175b
from reference_impl.sizes.scaled import Scaled
from reference_impl.sizes.stacked import Annotated, InSlices, form
from reference_impl.strategies import data_parallel, fsdp, fsdp_tensor_parallel, hsdp, sequence_parallel
from reference_impl.truth import Momentum

RESNET_50 = CNN(size=224, channels=(3, 64, 128, 256, 512, 1024), classes=400)
GPT_2_MEDIUM = ScannedGPT(vocab=50257, length=1024, embed=1024, heads=16, head_dim=64, mlp=4096, blocks=24)
VIT_1B = ScannedGPT(vocab=1000, length=256, embed=1408, heads=16, head_dim=88, mlp=6144, blocks=40)


def strategies() -> Iterator[Form]:
    """One form of each, with as many examples as it says: 32 images a device; 16 sequences, as fit 40 GB."""
    yield Scaled(data_parallel.PAGE, {"data": 8}, Momentum(), RESNET_50, variant="resnet_50", batch_size=256)
    yield form(Annotated, data_parallel.PAGE, {"data": 8}, GPT_2_MEDIUM, examples=16)
    yield form(Annotated, sequence_parallel.PAGE, {"data": 4, "model": 2}, GPT_2_MEDIUM, examples=32)
    yield form(Annotated, fsdp_tensor_parallel.PAGE, {"data": 256, "model": 4}, gpt_175b.TRANSFORMER, examples=6)
    yield form(Annotated, fsdp.PAGE, {"data": 16}, VIT_1B, examples=32)
    yield form(InSlices, hsdp.PAGE, {"replica": 8, "data": 16}, gpt_7b.TRANSFORMER, examples=2)
