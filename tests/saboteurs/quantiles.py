"""Faults of what runs along of all examples."""

from typing import Any

import jax

from tests.healthy.quantiles import Histogram, Quantile
from tests.healthy.recipes import DataParallel
from tests.healthy.trainer import moves
from tests.saboteurs.planting import plant_stranger


class RanksAFew(Quantile):
    """Quantiles of as many rows as one device has."""

    name = "quantile_of_one_device"

    def ranked(self, w: Any, batch: Any) -> Any:
        """The first of them."""
        each = super().ranked(w, batch)
        return each[: len(each) // self.mesh.size]


class CountsAFew(Histogram):
    """Counts of as many rows."""

    name = "counts_of_one_device"

    def counted(self, classes: Any) -> Any:
        """The first of them."""
        return classes[: len(classes) // self.mesh.size]


class GathersRows(Quantile):
    """Gathers all rows for it, and says so."""

    name = "rows_gathered_as_statistics"
    step_moves = (*DataParallel.step_moves, moves("all-gather", "statistics", (64, 16), (64, 8)))

    def ranked(self, w: Any, batch: Any) -> Any:
        """On every device."""
        return super().ranked(w, jax.lax.with_sharding_constraint(batch, self.on_mesh()))


plant_stranger(RanksAFew(), "NUM-3")
plant_stranger(CountsAFew(), "AUX-1")
plant_stranger(GathersRows(), "COM-2")
