"""How long does a step take to compile: cold, and from the persistent cache?"""

import jax
import pytest

from .caches import check_cold, check_warm, persistent_cache
from .compilation import Compilation
from .window import Window


@pytest.mark.fewer
def test_cold_compile_time(ready, step, judges, benchmark, size):
    """The time to trace, lower and compile a step with empty caches, in memory and on disk."""
    with persistent_cache(None):
        Compilation(Window(ready, judges), size, check_cold).time(benchmark)


@pytest.mark.fewer
def test_warm_compile_time(ready, step, judges, benchmark, size, tmp_path):
    """The time to trace and lower a step and to read the rest from the persistent cache."""
    with persistent_cache(tmp_path):
        jax.clear_caches()
        Compilation(Window(ready, judges), size, check_warm).time(benchmark)
