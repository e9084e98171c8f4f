"""The GPT of Flax's own modules: the numbers of the book's, with what ``nnx.MultiHeadAttention`` and ``nnx.Dropout``
do otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from .gpt import GPTTruth
from .threefry import Key, fold_in, make_key


@dataclass(frozen=True)
class FlaxGPTTruth(GPTTruth):
    """The truth of a GPT whose keys have a bias, and each of whose dropouts draws by a stream of its own.

    A key's bias shifts all scores of a query alike, which softmax does not see: its gradient is zero, and what float32
    makes of that is within its bound like any other error.
    """

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""
        shapes = {}
        for path, shape in super().parameter_shapes().items():
            shapes[path] = shape
            if path.endswith("attention/key/kernel"):
                shapes[path.removesuffix("kernel") + "bias"] = shape[1:]
        return shapes

    def draw_key(self, step: int, site: int) -> Key:
        """``nnx.Rngs(site)`` is forked by the layer, the first use of its key, and then used once a step."""
        return fold_in(fold_in(make_key(site), 0), step)
