"""A step that is compiled in every call, on one device too."""

from functools import cached_property
from typing import Any

import jax

from tests.healthy.recipes import DataParallel
from tests.saboteurs.planting import plant_stranger


class CountsInPython(DataParallel):
    """The number of the step is a Python number, and static."""

    name = "step_number_is_static"

    @cached_property
    def stepped(self) -> Any:
        """By that number."""

        def stepped(state: Any, batch: Any, number: int) -> Any:
            new, metrics = super(CountsInPython, self).update(state, batch)
            return new, metrics | {"number": jax.numpy.full((), number, jax.numpy.float32)}

        return jax.jit(stepped, donate_argnums=0, static_argnums=2)

    def train_step(self, state: Any, batch: Any) -> Any:
        """The optimizer counts."""
        return self.stepped(state, batch, self.number())

    def number(self) -> int:
        """Never the same."""
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls


plant_stranger(CountsInPython(), "CMP-1")
