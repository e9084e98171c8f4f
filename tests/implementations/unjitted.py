"""A step that has no program to look at, and one beside it that has."""

from tests.healthy.idioms import Trainer


class Unjitted(Trainer):
    """Hands over the function itself."""

    name = "unjitted"

    def __init__(self, devices=8):
        super().__init__(devices)
        self.train_step = self.step


def strategies():
    """Both, in this order."""
    return [Unjitted(), Trainer()]
