"""Known faults of released versions are in those versions, and in no other."""

import sys

import pytest

from meshproof.comparison import compare
from meshproof.observing.stack import versions
from meshproof.observing.versions import admits
from tests.comparing import CASES, judgement, report
from tests.regressions.known import KNOWN
from tests.regressions.running import shows
from tests.regressions.trainers import strategies

PARAMETERS = [
    pytest.param(known, id=known.name, marks=[pytest.mark.thorough] if known.select else []) for known in KNOWN
]
"""Every fault. Those that cases of the book meet are also seen by the suites, which expect them on these versions."""


@pytest.mark.parametrize("regression", PARAMETERS)
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


def test_a_deprecation_stops_nobody_who_still_trains():
    """A violated API-1 announces a regression, and is none while the case trains; where it does not, it is."""
    old, new = report(), report()
    for made, status in ((old, "proved"), (new, "failed")):
        made["clauses"][0] |= {"id": "API-1", "tests": [judgement("API-1", CASES[0], status, margin=None)]}
    for losses, change in (([2.0, 1.0], "changed"), ([], "regressed")):
        new["cases"][0]["losses"] = losses
        found = [each.change for each in compare(old, new).differences if each.place == "API-1"]
        assert found == [change]
