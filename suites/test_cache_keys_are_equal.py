"""A program that has another key in every process is compiled by all hosts of a fleet at every start."""

import pytest

from meshproof.operations.growing.keys import unequal


@pytest.mark.clause("CMP-4")
def test_cache_keys_are_equal(program, cache_keys, judge):
    """The compilation-cache key of a program MUST be equal in two fresh processes."""
    judge.clear(unequal(program.name, cache_keys))
