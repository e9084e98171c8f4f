"""The perceptron of the sources, 784-8192-8192-8192-10 with 8,192 examples a step, in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.sizes.scaled import ONE, Scaled, on_meshes
from reference_impl.strategies import single_device
from reference_impl.truth import Momentum

PERCEPTRON = MLP(widths=(784, 8192, 8192, 8192, 10))


def strategies() -> Iterator[Form]:
    """On one device and on more."""
    yield from on_meshes(Scaled(single_device.PAGE, ONE, Momentum(), MixedPrecision(PERCEPTRON), batch_size=8192))
