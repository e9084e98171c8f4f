"""What the observing process answers of a table of operations."""

from __future__ import annotations

from functools import cache
from typing import Any

from meshproof.operations.loading import load_table
from meshproof.operations.stacked.observing import observe_stacked

tables = cache(load_table)


def observe(request: dict[str, Any]) -> Any:
    """The moments of stacked layers."""
    return observe_stacked(tables(request["table"]).stacked_layers[request["name"]])
