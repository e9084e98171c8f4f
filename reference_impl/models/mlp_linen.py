"""The MLP of the book in Flax Linen: ``nn.Dense`` layers, initializers annotated with their logical axes."""

from __future__ import annotations

import jax
from flax import linen as nn

from reference_impl.models import mlp
from reference_impl.models.layout import Layout


class MLP(nn.Module):
    """``mlp.MLP`` as a module: the same layers by name. Which mesh axis a logical axis means, rules say elsewhere."""

    description: mlp.MLP

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C)."""
        widths = self.description.widths[1:]
        for i, (features, (name, (over, into))) in enumerate(zip(widths, self.description.layers.items(), strict=True)):
            if i > 0:
                x_BxD = nn.relu(x_BxD)
            dense = nn.Dense(
                features,
                kernel_init=nn.with_logical_partitioning(nn.initializers.lecun_uniform(), (over, into)),
                bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), (into,)),
                name=name,
            )
            x_BxD = layout.leave(dense(layout.enter(x_BxD, into)), over, (into,))
        return x_BxD
