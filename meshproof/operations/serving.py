"""What the observing process answers of a table of operations."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from meshproof.operations.loading import load_table
from meshproof.operations.observing import noted, observe_operation
from meshproof.operations.stacked.observing import observe_stacked

tables = cache(load_table)


def observe(request: dict[str, Any]) -> Any:
    """The moments of stacked layers, or an operation under its layouts."""
    table = tables(request["table"])
    if request["ask"] == "operation":
        return observe_operation(table.operations[request["name"]], request["exhaustive"], noted(Path(request["note"])))
    return observe_stacked(table.stacked_layers[request["name"]])
