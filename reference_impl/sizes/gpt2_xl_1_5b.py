"""GPT-2 XL (Radford et al. 2019), in bfloat16, with Adam.

1,557,534,400 parameters: the original's 1,557,611,200 but for the biases of the keys, 1,600 in each of 48 blocks.
Its 25 heads do not divide by two, so that no page splits its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.gpt import GPT
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.sizes.scaled import ONE, Scaled, on_meshes
from reference_impl.strategies import single_device
from reference_impl.truth import Adam

TRANSFORMER = GPT(vocab=50257, length=1024, embed=1600, heads=25, head_dim=64, mlp=6400, blocks=48)


def strategies() -> Iterator[Form]:
    """On one device and on more, 8 sequences of 1,024 tokens a step."""
    form = Scaled(single_device.PAGE, ONE, Adam(), MixedPrecision(TRANSFORMER), batch_size=8)
    yield from on_meshes(form, tensor_parallel=False)
