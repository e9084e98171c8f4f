"""The MLP whose kernels are all split by columns, as a tutorial has it: every activation is gathered between layers.

Dims as in ``mlp``. Each kernel has the logical axes ``inputs`` and ``outputs``, each bias ``outputs``, but for the
last, which is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax
from flax import nnx

from reference_impl.mapping import Axes
from reference_impl.models import Region, mlp, mlp_nnx
from reference_impl.models.layout import Layout
from reference_impl.truth import Loss


@dataclass(frozen=True)
class ColumnMLP(mlp.MLP):
    """Layer widths, input first, and the loss."""

    widths: tuple[int, ...] = (64, 128, 128, 8)
    criterion: Loss = "mean_squared_error"
    name: ClassVar[str] = "column_mlp"

    @property
    def layers(self) -> dict[str, Axes]:
        """Layer name to the logical axes of its kernel (D, F)."""
        return {f"dense_{i}": ("inputs", "outputs") for i, _ in enumerate(pairwise(self.widths))}

    @property
    def axes(self) -> dict[str, dict[str, Axes]]:
        """The canonical parameter tree, with logical axes at its leaves."""
        *layers, last = self.layers
        whole: dict[str, Axes] = {"kernel": ("inputs", "outputs"), "bias": ("classes",)}
        return dict.fromkeys(layers, whole | {"bias": ("outputs",)}) | {last: whole}

    def regions(self) -> Iterator[Region]:
        """The input of each layer but the first; and the outputs, whose gradient every device knows whole."""
        for d in self.widths[1:-1]:
            yield Region("outputs", entered=d, left=0)
        yield Region("outputs", entered=self.widths[-1], left=0, known=True)

    def apply(self, parameters: Mapping[str, Any], x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C), laid out behind the last bias too: its gradient would be reduced by columns, then gathered."""
        *layers, last = (parameters[name] for name in self.layers)
        for layer in layers:
            y_BxF = layout.product("bd,df->bf", x_BxD, layer["kernel"], "inputs", ("outputs",)) + layer["bias"]
            x_BxD = layout.leave(jax.nn.relu(y_BxF), "outputs", ("inputs",))
        y_BxC = layout.product("bd,df->bf", x_BxD, last["kernel"], "inputs", ("outputs",))
        return layout.leave(layout.leave(y_BxC, "outputs", ("classes",)) + last["bias"], "outputs", ("classes",))


class NnxColumnMLP(mlp_nnx.MLP):
    """The same of ``nnx.Linear``, but for the last bias: it is added once what it is added to is whole."""

    def __call__(self, x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C)."""
        *layers, last = (getattr(self, name) for name in self.description.layers)
        for layer in layers:
            y_BxF = layout.leave(layer(x_BxD), "inputs", ("outputs",))
            x_BxD = layout.leave(nnx.relu(y_BxF), "outputs", ("inputs",))
        y_BxC = layout.leave(x_BxD @ last.kernel[...], "inputs", ("outputs",))
        return layout.leave(layout.leave(y_BxC, "outputs", ("classes",)) + last.bias[...], "outputs", ("classes",))
