"""The GPT whose blocks are stacked: the truth of single blocks, in another tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .gpt import GPTTruth, Gradients
from .operations import rearrange
from .optimizers import Values
from .rounding import Array, Rounded


@dataclass(frozen=True)
class StackedGPTTruth(GPTTruth):
    """The same numbers in another tree: ``blocks/…`` (L, …) has what ``block_0/…``, ``block_1/…`` and so on have."""

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path: the first block's, L times."""
        shapes: dict[str, tuple[int, ...]] = {}
        for path, shape in super().parameter_shapes().items():
            block, _, name = path.partition("/")
            if block == "block_0":
                shapes[f"blocks/{name}"] = (self.blocks, *shape)
            elif not block.startswith("block_"):
                shapes[path] = shape
        return shapes

    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """As the truth of single blocks draws each of them."""
        if not path.startswith("blocks/"):
            return super().draw(path, shape)
        return np.stack([super(StackedGPTTruth, self).draw(each, shape[1:]) for each in self.unstacked(path)])

    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, Gradients]:
        """Those of single blocks, stacked."""
        rows: dict[str, Rounded] = {}
        for path, x in parameters.items():
            if path.startswith("blocks/"):
                rows |= {each: rearrange(x, lambda a, i=i: a[i]) for i, each in enumerate(self.unstacked(path))}  # type: ignore[misc]
            else:
                rows[path] = x
        value, gradients = super().loss_and_gradients(rows, batch, lean)
        stacked = {
            path: gradients.get(path) or stack([gradients[each] for each in self.unstacked(path)])
            for path in parameters
        }
        return value, stacked

    def unstacked(self, path: str) -> list[str]:
        """The paths of a stacked parameter in single blocks."""
        return [path.replace("blocks", f"block_{i}", 1) for i in range(self.blocks)]


def stack(rows: Sequence[Rounded]) -> Rounded:
    """Rows of one shape as one array."""
    return Rounded(np.stack([row.value for row in rows]), np.stack([row.variance for row in rows]))
