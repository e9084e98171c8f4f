"""How long does sharded init take?"""

import jax
import pytest

from meshproof.observing.compilations import compilations_of
from meshproof.observing.state import array_leaves, bytes_per_device

from .initialisation import Initialisation
from .program import compile_program
from .record import before

ROUNDS = 10


@pytest.mark.fewer
def test_init_time(ready, step, benchmark, size):
    """The time from a key to a state on its devices, bitwise equal each time."""
    jax.clear_caches()  # init was traced and lowered before, for the shapes of a state
    program = compile_program(ready, "init", jax.random.key(0))
    making = Initialisation(ready)
    known = before(ready, size, "init", program) | {"judged_by": "the first state"}
    known["facts"]["state_bytes"] = bytes_per_device([array for _, array in array_leaves(making.state)])
    making.check()
    with compilations_of() as making.events:
        benchmark.pedantic(making.run, teardown=making.check, rounds=ROUNDS, iterations=1)
    benchmark.extra_info |= known
