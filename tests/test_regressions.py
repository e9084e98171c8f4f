"""Known faults of released versions are in those versions, and in no other."""

import sys

import pytest

from meshproof.environment import admits, versions
from tests.regressions.known import KNOWN
from tests.regressions.running import shows
from tests.regressions.trainers import strategies


@pytest.mark.parametrize("regression", KNOWN, ids=lambda regression: regression.name)
def test_installed_stack_has_the_faults_of_its_versions(regression):
    """A fault shows on the installed stack where that is said of its versions, and only there."""
    installed = versions()
    affected = all(admits(specifier, installed[name]) for name, specifier in regression.affected.items())
    assert bool(shows(regression, sys.executable)) == affected


def test_silent_faults_are_found_in_the_book():
    """What raises nothing is found by the suites as they stand; what no case of the book meets has a trainer."""
    assert all(regression.select for regression in KNOWN if regression.silent)
    assert all(bool(regression.select) != bool(regression.shown) for regression in KNOWN)
    assert {trainer.name for trainer in strategies()} == {known.name for known in KNOWN if not known.select}
