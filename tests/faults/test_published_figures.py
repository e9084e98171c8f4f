"""A formula that is wrong is caught by ROO-1, by name, and so is a figure that nobody reads as it is printed."""

import inspect
import re
from importlib import import_module

import pytest

from suites.test_published_figures import FIGURES, problem
from tests.saboteurs.formulas import FAULTS

ROOMS = ("collectives", "memory", "pipelining", "rooflines")

WITHOUT_A_FIGURE = {
    *("collectives.reduce_scatter_seconds", "collectives.ring_hops"),
    *("rooflines.data_parallel", "rooflines.fsdp", "rooflines.tensor_parallel", "rooflines.fsdp_tensor_parallel"),
    *("rooflines.intensity", "rooflines.recomputed_flops", "rooflines.attention_flops"),
}
"""Formulas of which only the formula is printed: `tests/unit/planning/test_laws.py` holds them against others."""


def laws():
    """Every formula of the planner."""
    for room in ROOMS:
        module = import_module(f"meshproof.planning.{room}")
        for name, law in inspect.getmembers(module, inspect.isfunction):
            if law.__module__ == module.__name__:
                yield f"{room}.{name}"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_formula_is_caught(fault, monkeypatch):
    """By a message that names it and its source, with what was expected and what was seen."""
    law, wrong = FAULTS[fault]
    room, _, name = law.partition(".")
    monkeypatch.setattr(f"meshproof.planning.{room}.{name}", wrong)
    problems = list(filter(None, map(problem, FIGURES)))
    assert any(re.search(rf"{re.escape(law)}\(.*\): expected .*saw ", told) for told in problems), problems


def test_every_formula_has_a_figure_and_a_fault():
    """A formula that no published figure is held against would be whatever it is; so would one that cannot fail."""
    held = {figure["law"] for figure in FIGURES}
    assert {law for law, _ in FAULTS.values()} == held
    assert set(laws()) == held | WITHOUT_A_FIGURE and not held & WITHOUT_A_FIGURE


def test_a_misprint_is_a_problem():
    """A figure that is off by one unit of its last digit is not read as right."""
    [figure] = [each for each in FIGURES if each["says"].startswith("27 microbatches")]
    assert problem(figure) is None
    assert "expected 26, to 1, saw 27" in problem(figure | {"published": 26})


def test_a_source_that_is_right_is_not_called_wrong():
    """What is said of a source is held too: the figure must differ, and the right one must be the formula's."""
    [figure] = [each for each in FIGURES if each["says"].startswith("X of about 13.9")]
    assert problem(figure) is None
    assert "expected another than 13.7" in problem(figure | {"published": 13.7})
    assert "expected 14.5" in problem(figure | {"right": 14.5})
