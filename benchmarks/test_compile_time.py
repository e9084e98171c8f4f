"""How long does a step take to compile: cold, and where the persistent cache holds it?"""

import jax
import pytest

from benchmarks.caches import cache_events, check_cold, check_warm, persistent_cache
from benchmarks.program import compile_program
from benchmarks.record import before
from benchmarks.window import Window, WindowError
from meshproof.compilations import compilations_of

ROUNDS = 3


class Compilation:
    """The compilations of one step, all alike: nothing of it is left in memory before each."""

    def __init__(self, window, size, check):
        self.window, self.case, self.check_caches = window, window.case, check
        self.state = window.set_up()[0][0]
        program = self.compile()
        if program is None:
            pytest.skip(f"{self.case.id}: train_step has no lower(), it cannot be compiled ahead of time")
        window.warm_up()
        self.facts = program.facts
        self.known = before(self.case, size, window.member, program) | {"judged_by": window.judge.name}

    def compile(self):
        """Trace, lower and compile it."""
        return compile_program(self.case, self.window.member, self.state, self.window.batches[0])

    def forget(self):
        """Leave nothing of it in memory, and listen from here on."""
        jax.clear_caches()
        self.compiled.clear()
        self.cached.clear()

    def run(self):
        """The timed part."""
        self.program = self.compile()

    def check(self):
        """The caches were used as they should be, and what was compiled is the program whose numbers are right."""
        self.check_caches(self.case.id, self.compiled, self.cached)
        if self.program.facts != self.facts:
            raise WindowError(f"{self.case.id}: compiled again, its facts are {self.program.facts}, not {self.facts}")

    def time(self, benchmark):
        """Time it."""
        with compilations_of() as self.compiled, cache_events() as self.cached:
            benchmark.pedantic(self.run, setup=self.forget, teardown=self.check, rounds=ROUNDS, iterations=1)
            if benchmark.disabled:
                self.check()
        self.known["measured"]["compile_seconds"] = None if benchmark.disabled else benchmark.stats.stats.median
        benchmark.extra_info |= self.known


@pytest.mark.fewer
def test_cold_compile_time(ready, step, judges, benchmark, size):
    """The time to trace, lower and compile a step of which nothing is kept, in memory or on disk."""
    with persistent_cache(None):
        Compilation(Window(ready, judges), size, check_cold).time(benchmark)


@pytest.mark.fewer
def test_warm_compile_time(ready, step, judges, benchmark, size, tmp_path):
    """The time to trace and lower a step and to read the rest from the persistent cache."""
    with persistent_cache(tmp_path):
        jax.clear_caches()
        Compilation(Window(ready, judges), size, check_warm).time(benchmark)
