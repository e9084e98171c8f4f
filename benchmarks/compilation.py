"""A timed compilation: all of it, with nothing left in memory before, and checked after each time."""

import jax
import pytest

from meshproof.observing.compilations import compilations_of
from meshproof.timing.ratios import ROUNDS

from .caches import cache_events
from .program import compile_program
from .record import before
from .window import WindowError


class Compilation:
    """Repeated compilations of one step; JAX's memory caches are cleared before each."""

    def __init__(self, window, size, check):
        self.window, self.case, self.check_caches = window, window.case, check
        program = self.compile(window.set_up()[0][0])
        if program is None:
            pytest.skip(f"{self.case.id}: train_step has no lower(), it cannot be compiled ahead of time")
        window.warm_up()
        self.facts = program.facts
        self.known = before(self.case, size, window.member, program) | {"judged_by": window.judge.name}
        self.state = window.set_up()[0][0]

    def compile(self, state):
        """Trace, lower and compile the step for a state; there is never a second state, which might not fit."""
        return compile_program(self.case, self.window.member, state, self.window.batches[0])

    def forget(self):
        """Clear JAX's caches in memory, and record events from here on."""
        jax.clear_caches()
        self.compiled.clear()
        self.cached.clear()

    def run(self):
        """The timed part."""
        self.program = self.compile(self.state)

    def check(self):
        """Check that the caches were used as they should be, and that the program is the one that was judged."""
        self.check_caches(self.case.id, self.compiled, self.cached)
        if self.program.facts != self.facts:
            raise WindowError(f"{self.case.id}: compiled again, its facts are {self.program.facts}, not {self.facts}")

    def time(self, benchmark):
        """Time the compilations, with the facts of the program beside them."""
        with compilations_of() as self.compiled, cache_events() as self.cached:
            benchmark.pedantic(self.run, setup=self.forget, teardown=self.check, rounds=ROUNDS, iterations=1)
            if benchmark.disabled:
                self.check()
        self.known["measured"]["compile_seconds"] = None if benchmark.disabled else benchmark.stats.stats.median
        benchmark.extra_info |= self.known
