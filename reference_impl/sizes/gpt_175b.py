"""GPT-3 175B (Brown et al. 2020, table 2.1), on 1,024 devices unless asked otherwise.

174,603,079,680 parameters: 96 blocks of width 12,288, 96 heads of 128. 6 sequences of 2,048 tokens for every 4 devices:
1,024 take 3.1 million tokens, the paper 3.2. Of 1,024, 4 to a tensor, a device keeps 2.0 GB; the inputs of its blocks
take 29 GB. With 8 to a tensor, and as many tokens a step, they would take 58.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes.stacked import split_tensors

TRANSFORMER = ScannedGPT(vocab=50257, length=2048, embed=12288, heads=96, head_dim=128, mlp=49152, blocks=96)


def strategies(devices: int = 1024) -> Iterator[Form]:
    """FSDP and tensor parallel, annotated and by hand."""
    yield from split_tensors(TRANSFORMER, devices, examples=6, model=4)
