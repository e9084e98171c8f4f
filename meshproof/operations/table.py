"""The operations and stacked layers that every run with the reference implementation judges."""

from __future__ import annotations

from collections.abc import Iterator

from meshproof.operations.stacked.observing import StackedCase
from meshproof.operations.stacked.table import stacked_cases


def stacked_layers() -> Iterator[StackedCase]:
    """Layers that are stacked by each framework."""
    return stacked_cases()
