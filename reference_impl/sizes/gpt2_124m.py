"""GPT-2 124M (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"), in bfloat16, with Adam.

124,430,592 parameters: the original's 124,439,808 but for the biases of the keys, 768 in each of 12 blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.gpt import GPT
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.sizes.scaled import ONE, Scaled, on_meshes
from reference_impl.strategies import single_device
from reference_impl.truth import Adam

TRANSFORMER = GPT(vocab=50257, length=1024, embed=768, heads=12, head_dim=64, mlp=3072, blocks=12)


def strategies() -> Iterator[Form]:
    """On one device and on more, 16 sequences of 1,024 tokens a step."""
    yield from on_meshes(Scaled(single_device.PAGE, ONE, Adam(), MixedPrecision(TRANSFORMER), batch_size=16))
