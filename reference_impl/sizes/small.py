"""A transformer of 3 million parameters and a perceptron of 9 million, in float32, that NumPy can still judge."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.models.gpt import GPT
from reference_impl.models.mlp import MLP
from reference_impl.sizes.scaled import ONE, on_meshes
from reference_impl.strategies import single_device
from reference_impl.truth import Momentum

TRANSFORMER = GPT(vocab=1024, length=64, embed=256, heads=8, head_dim=32, mlp=1024, blocks=4)
PERCEPTRON = MLP(widths=(784, 1024, 4096, 1024, 10))


def strategies() -> Iterator[Form]:
    """Both on one device and on more."""
    yield from on_meshes(JaxForm(single_device.PAGE, ONE, Momentum(learning_rate=0.1), TRANSFORMER, batch_size=16))
    yield from on_meshes(JaxForm(single_device.PAGE, ONE, Momentum(), PERCEPTRON, batch_size=128))
