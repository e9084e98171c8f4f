"""Known faults of released versions are in those versions, and in no other."""

import sys

import pytest

from meshproof.environment import admits, versions
from tests.regressions import reproductions
from tests.regressions.known import KNOWN
from tests.regressions.running import shows


@pytest.mark.parametrize("regression", KNOWN, ids=lambda regression: regression.name)
def test_installed_stack_has_the_faults_of_its_versions(regression):
    """A fault shows on the installed stack where that is said of its versions, and only there."""
    installed = versions()
    affected = all(admits(specifier, installed[name]) for name, specifier in regression.affected.items())
    assert bool(shows(regression, sys.executable)) == affected


@pytest.mark.parametrize("regression", KNOWN, ids=lambda regression: regression.name)
def test_silent_faults_are_found_by_a_clause(regression):
    """What raises nothing is found by the suites; what is not has a reproduction."""
    assert regression.clause or not regression.silent
    assert bool(regression.clause) == bool(regression.select) != bool(regression.shown)
    assert regression.clause or callable(getattr(reproductions, regression.name))
