"""Metrics that are made of the loss of each device."""

from typing import Any

import jax.numpy as jnp

from tests.healthy.recipes import Classifies
from tests.saboteurs.planting import plant_stranger


class MeanOfPerplexities(Classifies):
    """The perplexities of the devices, averaged: more than that of the mean loss."""

    name = "mean_of_perplexities"

    def update(self, state: Any, batch: Any) -> Any:
        """The loss is right."""
        new, metrics = super().update(state, batch)
        rows = self.losses(state["parameters"], batch) * batch["counts"]
        sums = [each.reshape(self.mesh.size, -1).sum(1) for each in (rows, batch["counts"])]
        return new, metrics | {"perplexity": jnp.mean(jnp.exp(sums[0] / sums[1]))}


plant_stranger(MeanOfPerplexities(), "NUM-4")
