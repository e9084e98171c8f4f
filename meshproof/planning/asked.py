"""What is asked of a plan, as it was written: a model, counts, names. Each refusal names the value and the option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from meshproof.planning.models import Model, PlanError, find_model

Found = TypeVar("Found")

OPTIONS = {"heads": "--heads", "kv_heads": "--kv-heads", "vocabulary": "--vocab", "tied": "--tied/--untied"}
"""Sizes that say something of a stack of layers alone, and how each is given."""

LEAST_PARAMETERS, LARGEST = 1000, 1e15
"""Fewer parameters are meant as billions (7, 7.5); a larger count is a slip."""


def asked_model(config: str | None, params: float | None, given: dict[str, Any], read: dict[str, Any]) -> Model:
    """The model by its name, by its sizes, or as it was read of a trainer: what is given beside that counts instead.

    Raises ``ValueError`` for none of these, or more than one, and for sizes that contradict each other.
    """
    if read:
        try:
            sizes = dict(read["sizes"])
            if given.get("heads", sizes.get("heads")) != sizes.get("heads"):
                sizes.pop("kv_heads", None)  # they were read beside other heads
            return Model(read["case"], **sizes | given)
        except PlanError as error:
            told = f"sizes read of {read['case']}: {error}; --layers and the others count instead of what was read"
            raise PlanError(told) from error
    if (config is None) == (params is None):
        raise PlanError(
            "expected --config MODEL, or --params with the sizes of a model of your own, or --impl MODULE to read "
            "them of a trainer, and not several"
        )
    if config and given.keys() - {"length"}:
        raise PlanError(f"--config {config} has sizes of its own: leave away all but --sequence")
    if config:
        return replace(find_model(config), **given)
    model = Model("the model", params or 0.0, **given)
    if not model.is_stack and (idle := [OPTIONS[name] for name in OPTIONS if name in given]):
        raise PlanError(
            f"{' and '.join(idle)} would change nothing: a model without --layers, --d-model and --d-ff is planned by "
            f"its parameters alone; give these three too, or leave away {' and '.join(idle)}"
        )
    return model


def named(option: str, name: str, find: Callable[[str], Found]) -> Found:
    """What an option names. Raises ``ValueError`` that begins with the option."""
    try:
        return find(name)
    except ValueError as error:
        raise ValueError(f"{option} {error}") from error


def whole(option: str, number: float, least: int, example: str) -> int:
    """A count that may be written as 4e6. Raises ``ValueError`` for no whole number from ``least`` to `LARGEST`."""
    if not least <= number <= LARGEST or number != int(number):
        bound = f"up to {LARGEST:g}" if number > LARGEST else "above 0" if least == 1 else f"of {least:,} or more"
        raise ValueError(f"{option} {number:g}: expected a whole number {bound}, such as {example}")
    return int(number)
