"""Chinchilla 70B (Hoffmann et al. 2022, table 4) with the blocks of a GPT, on 256 devices unless asked otherwise.

64,711,311,360 parameters: 80 blocks of width 8,192, 64 heads of 128, a vocabulary of 32,000; of its 70 billion those
of relative positions are missing. 8 sequences of 2,048 tokens for every 4 devices, so that 256 take 1 million tokens,
and 384 the 1.5 million of the paper. Of 256, 4 to a tensor, a device keeps 3.0 GB; the inputs of its blocks take
21 GB, which is why a tensor is not split further: they would not be.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes.stacked import split_tensors

TRANSFORMER = ScannedGPT(vocab=32000, length=2048, embed=8192, heads=64, head_dim=128, mlp=32768, blocks=80)


def strategies(devices: int = 256) -> Iterator[Form]:
    """FSDP and tensor parallel, annotated and by hand."""
    yield from split_tensors(TRANSFORMER, devices, examples=8, model=4)
