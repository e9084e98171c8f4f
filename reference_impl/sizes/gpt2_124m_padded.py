"""`gpt2_124m` with 50,304 tokens for 50,257, a multiple of 128: its rows of logits are whole lines of memory.

124,466,688 parameters. No batch holds one of the 47 tokens more; that they are not in it is learned like any other's
absence, as in nanoGPT and llm.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reference_impl.forms.base import Form
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.sizes.gpt2_124m import TRANSFORMER
from reference_impl.sizes.scaled import ONE, Scaled, on_meshes
from reference_impl.strategies import single_device
from reference_impl.truth import Adam

PADDED = replace(TRANSFORMER, vocab=50_304)


def strategies() -> Iterator[Form]:
    """On one device and on more, 16 sequences of 1,024 tokens a step."""
    yield from on_meshes(Scaled(single_device.PAGE, ONE, Adam(), MixedPrecision(PADDED), batch_size=16))
