"""What the observing process answers of a table of operations."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from meshproof.operations.growing.keys import observe_keys
from meshproof.operations.growing.observing import observe_growth
from meshproof.operations.loading import load_table
from meshproof.operations.observing import noted, observe_operation
from meshproof.operations.stacked.observing import observe_stacked
from meshproof.operations.transforms.observing import observe_family
from meshproof.operations.transforms.settings import Setting, chosen_settings

tables = cache(load_table)


@cache
def settings(table: str, exhaustive: bool) -> dict[str, list[Setting]]:
    """The compositions of each family of a table: together they cover what there is to choose."""
    return chosen_settings([*tables(table).transforms.values()], exhaustive)


def observe(request: dict[str, Any]) -> Any:
    """What became of one of the things that a table lists; or the cache keys of all its programs."""
    table = tables(request["table"])
    if request["ask"] == "operation":
        return observe_operation(table.operations[request["name"]], request["exhaustive"], noted(Path(request["note"])))
    if request["ask"] == "growth":
        return observe_growth(table.programs[request["name"]], noted(Path(request["note"])))
    if request["ask"] == "keys":
        return observe_keys(request["table"], [program.name for program in table.programs.values()])
    if request["ask"] == "transforms":
        own = settings(request["table"], request["exhaustive"])[request["name"]]
        return observe_family(table.transforms[request["name"]], own, noted(Path(request["note"])))
    return observe_stacked(table.stacked_layers[request["name"]])
