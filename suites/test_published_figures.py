"""Who plans by a formula that nobody held against its source trains on the wrong mesh for months."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from meshproof.cases import REFERENCE
from meshproof.observing.seen import NotExercised

FIGURES = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))["figure"]


@pytest.mark.clause("ROO-1")
def test_published_figures_are_those_of_the_formulas(pytestconfig, judge):
    """Every formula by which `meshproof plan` reckons MUST give the figures that were published with it. (To less than
    one unit of the last digit that is printed. Where the source errs, the figure that its own formula gives, and not
    the printed one. Judged with the book alone.)"""
    if pytestconfig.getoption("impl") != REFERENCE:
        judge.see(NotExercised("the formulas of `meshproof plan` are judged with the book: a trainer has none"))
    judge.clear(filter(None, map(problem, FIGURES)))


def problem(figure):
    """What is wrong with a figure or its formula; ``None`` if they agree, or differ as is known."""
    module, _, name = figure["law"].partition(".")
    found = getattr(import_module(f"meshproof.planning.{module}"), name)(**figure["arguments"])
    agrees = abs(found - figure["published"]) < figure["digit"]
    told = f"{figure['source']}: {figure['says']!r}: {figure['law']}({spelled(figure['arguments'])})"
    if "wrong" not in figure:
        return None if agrees else f"{told}: expected {figure['published']:g}, to {figure['digit']:g}, saw {found:.6g}"
    if agrees:
        return f"{told}: expected another than {figure['published']:g}, for {figure['wrong']}; saw {found:.6g}"
    near = abs(found - figure["right"]) < figure.get("right_digit", figure["digit"])
    return None if near else f"{told}: expected {figure['right']:g}, for {figure['wrong']}; saw {found:.6g}"


def spelled(arguments):
    """A call's arguments, in a message."""
    return ", ".join(f"{name}={value}" for name, value in arguments.items())
