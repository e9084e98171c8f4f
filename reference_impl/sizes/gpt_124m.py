"""GPT-2 124M (Radford et al. 2019) scanned over its blocks, on 8 devices unless asked otherwise.

124,430,592 parameters: `gpt2_124m`, whose blocks are not unrolled. 16 sequences of 1,024 tokens a device: those of
nanoGPT's reproduction. A device of eight keeps 0.2 GB; the inputs of its blocks take 0.3 GB, its logits 3.3 GB.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes.stacked import Annotated, form, fully_sharded
from reference_impl.strategies import data_parallel

TRANSFORMER = ScannedGPT(vocab=50257, length=1024, embed=768, heads=12, head_dim=64, mlp=3072, blocks=12)


def strategies(devices: int = 8) -> Iterator[Form]:
    """FSDP, annotated and by hand, and data parallelism, which needs more memory."""
    yield from fully_sharded(TRANSFORMER, devices, examples=16)
    yield form(Annotated, data_parallel.PAGE, {"data": devices}, TRANSFORMER, examples=16)
