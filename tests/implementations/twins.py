"""Two strategies that cannot be told apart."""

from tests.implementations.minimal import Trainer


def strategies():
    """The same twice."""
    return [Trainer(), Trainer()]
