"""`gpt2_xl_1_5b` with 50,304 tokens for 50,257, as `gpt2_124m_padded`: 1,557,609,600 parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reference_impl.forms.base import Form
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.sizes.gpt2_124m_padded import PADDED
from reference_impl.sizes.gpt2_xl_1_5b import TRANSFORMER
from reference_impl.sizes.scaled import ONE, Scaled, on_meshes
from reference_impl.strategies import single_device
from reference_impl.truth import Adam


def strategies() -> Iterator[Form]:
    """On one device and on more, 8 sequences of 1,024 tokens a step."""
    padded = replace(TRANSFORMER, vocab=PADDED.vocab)
    form = Scaled(single_device.PAGE, ONE, Adam(), MixedPrecision(padded), batch_size=8)
    yield from on_meshes(form, tensor_parallel=False)
