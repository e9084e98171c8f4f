"""How long does it take to make a state that is sharded from birth?"""

import jax
import pytest

from benchmarks.program import compile_program
from benchmarks.record import before
from benchmarks.window import WindowError, is_ready
from meshproof.arrays import array_leaves, bytes_per_device, finite_state, host
from meshproof.compilations import compilations_of
from meshproof.judging import digest

ROUNDS = 10


class Initialisation:
    """The making of one state, always from the same key."""

    def __init__(self, case):
        self.case, self.events, self.state = case, [], None
        self.key = jax.block_until_ready(jax.random.key(0))
        self.run()
        self.first = self.content()

    def run(self):
        """The timed part."""
        self.state = jax.block_until_ready(self.case.strategy.init(self.key))

    def content(self):
        """What every state must be equal to, to the bit."""
        return digest([host(dict(array_leaves(self.state)))])

    def check(self, *_):
        """The state is there, finite, and that of the first time; nothing was compiled."""
        if not all(map(is_ready, jax.tree.leaves(self.state))):
            raise WindowError(f"{self.case.id}: init was not waited for")
        if self.events:
            raise WindowError(f"{self.case.id}: init compiled while it was timed: {', '.join(set(self.events))}")
        finite = finite_state(array_leaves(self.state))
        if finite.failures:
            raise WindowError(f"{self.case.id}: init made what is not finite: {finite}")
        if self.content() != self.first:
            raise WindowError(f"{self.case.id}: init made another state of the same key")


@pytest.mark.fewer
def test_init_time(ready, step, benchmark, size):
    """The time from a key to a state on its devices, the same to the bit each time."""
    making = Initialisation(ready)
    program = compile_program(ready, "init", making.key)
    known = before(ready, size, "init", program) | {"judged_by": "the first state"}
    known["facts"]["state_bytes"] = bytes_per_device([array for _, array in array_leaves(making.state)])
    making.check()
    with compilations_of() as making.events:
        benchmark.pedantic(making.run, teardown=making.check, rounds=ROUNDS, iterations=1)
    benchmark.extra_info |= known
