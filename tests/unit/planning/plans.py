"""Questions for tests, and the plan of one layout."""

from dataclasses import replace

from meshproof.planning.layouts import Layout
from meshproof.planning.memory import PRECISIONS
from meshproof.planning.models import find_model
from meshproof.planning.search import Question
from meshproof.targets import find_chip


def question(model, chip, chips, batch=None, precision="mixed", memory=None):
    """A named model on so many chips, with its own batch unless told otherwise."""
    found = find_model(model) if isinstance(model, str) else model
    bought = find_chip(chip)
    if memory:
        bought = replace(bought, memory=int(memory))
    return Question(found, bought, chips, int(batch or found.batch), PRECISIONS[precision])


def plan(asked, **layout):
    """One layout of it, reckoned."""
    return asked.plan(Layout(**layout))
