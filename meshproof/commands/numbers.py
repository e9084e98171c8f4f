"""Numbers on the command line, refused by their value and with one that would be taken."""

from __future__ import annotations

import typer

MOST_CHIPS = 1_000_000


def number(text: str) -> float:
    """A number, also written as 4e6. Raises ``typer.BadParameter``."""
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: expected a number, such as 7e9 or 0.45") from error


def count(text: str) -> int:
    """A whole number above 0. Raises ``typer.BadParameter``."""
    if not text.isdecimal() or not int(text):
        raise typer.BadParameter(f"{text!r}: expected a whole number above 0, such as 64")
    return int(text)


def chips_of(text: str) -> int:
    """How many chips. Raises ``typer.BadParameter``."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CHIPS:
        raise typer.BadParameter(f"{text!r}: expected a whole number from 1 to {MOST_CHIPS:,}, such as 64")
    return int(text)
