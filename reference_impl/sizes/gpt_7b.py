"""GPT-3 6.7B (Brown et al. 2020, table 2.1), on 64 devices unless asked otherwise.

6,658,273,280 parameters: 32 blocks of width 4,096, 32 heads of 128. 4 sequences of 2,048 tokens a device, so that 256
devices take the 2 million tokens of the paper. A device of eight keeps 10 GB, of 64 1.2 GB; the inputs of its blocks
take 2.1 GB, its logits 1.6 GB.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes.stacked import fully_sharded

TRANSFORMER = ScannedGPT(vocab=50257, length=2048, embed=4096, heads=32, head_dim=128, mlp=16384, blocks=32)


def strategies(devices: int = 64) -> Iterator[Form]:
    """FSDP, annotated and by hand, and HSDP on two slices of half the devices each."""
    yield from fully_sharded(TRANSFORMER, devices, examples=4, slices=True)
