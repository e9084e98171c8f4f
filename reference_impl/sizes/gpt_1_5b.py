"""GPT-2 XL (Radford et al. 2019) scanned over its blocks, on 8 devices unless asked otherwise.

1,557,534,400 parameters: `gpt2_xl_1_5b`, whose blocks are not unrolled. 8 sequences of 1,024 tokens a device. A device
of eight keeps 2.3 GB; the inputs of its blocks take 1.3 GB, its logits 1.6 GB.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes.stacked import fully_sharded

TRANSFORMER = ScannedGPT(vocab=50257, length=1024, embed=1600, heads=25, head_dim=64, mlp=6400, blocks=48)


def strategies(devices: int = 8) -> Iterator[Form]:
    """FSDP, annotated and by hand."""
    yield from fully_sharded(TRANSFORMER, devices, examples=8)
