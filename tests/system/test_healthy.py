"""Healthy trainers pass: every one that fails here is a false alarm, which costs its user a day."""

import json
import subprocess
import sys

import pytest

from tests.healthy.idioms import strategies

NAMES = [strategy.name for strategy in strategies()]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Each trainer's clauses, by status."""
    path = tmp_path_factory.mktemp("healthy") / "report.json"
    command = [sys.executable, "-m", "pytest", "suites", "-q", "--impl", "tests.healthy.idioms"]
    subprocess.run([*command, "--conformance-report", str(path)], capture_output=True, check=False)
    verdicts = {}
    for clause in json.loads(path.read_text(encoding="utf-8"))["clauses"]:
        for test in clause["tests"]:
            name = (test["case"] or "").partition("-")[0]
            verdicts.setdefault((name, test["status"]), {})[clause["id"]] = test["message"]
    return verdicts


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_trainer_fails_nothing(found, name):
    """On any clause, and its numbers are judged."""
    assert found.get((name, "failed"), {}) == {}
    assert found[name, "proved"].keys() >= {"NUM-2", "NUM-3", "NUM-4", "NUM-11", "NUM-12", "NUM-13"}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_judged_of_it_is_known(found, name):
    """Beside members that none of them has."""
    closed = {clause for clause in found.get((name, "not-supported"), {}) if clause.startswith("NUM")}
    assert not closed
