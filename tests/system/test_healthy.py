"""Healthy trainers pass: every one that fails here is a false alarm, which costs its user a day."""

import json
import subprocess
import sys

import pytest

from meshproof.cases import case_id, load_cases
from tests.healthy.zoo import FAMILIES, strategies
from tests.selected import parameters

pytestmark = pytest.mark.newest_stack

CASES = [
    pytest.param(case_id(trainer), marks=[pytest.mark.thorough] if number else [])
    for family in FAMILIES
    for number, trainer in enumerate(family.strategies())
]
"""Every trainer, and of each family the first in every run: what a stack changes, it changes for a family."""

NUMBERS = {"NUM-2", "NUM-3", "NUM-4", "NUM-11", "NUM-12", "NUM-13"}
IN_FLOAT32 = {"NUM-2", "NUM-3", "NUM-4"}
NARROW = {case_id(trainer) for trainer in strategies() if trainer.contract.compute_dtype != "float32"}
"""Of these MIX-1 judges what the others do in float32."""

DRAWING = {case_id(trainer) for trainer in strategies() if getattr(trainer, "draws", False)}
"""Of these the loss of the forward pass may be another one than the step's (NUM-11)."""

LACKING = {"COM-9", "NUM-7", "NUM-8"}
"""These need a member, or another form of the trainer, that few users have."""


@pytest.fixture(scope="module")
def found(request, tmp_path_factory):
    """The clauses of each trainer that a test was selected for, by status."""
    path = tmp_path_factory.mktemp("healthy") / "report.json"
    chosen = " or ".join(sorted({each["name"].partition("@")[0] for each in parameters(request)}))
    command = [sys.executable, "-m", "pytest", "suites", "-q", "--impl", "tests.healthy.zoo", "-k", chosen]
    subprocess.run([*command, "--conformance-report", str(path)], capture_output=True, check=False)
    verdicts = {}
    for clause in json.loads(path.read_text(encoding="utf-8"))["clauses"]:
        for test in clause["tests"]:
            verdicts.setdefault((test["case"], test["status"]), {})[clause["id"]] = test["message"]
    return verdicts


def test_the_zoo_is_large():
    """At least 28 kinds, of four frameworks, each with a whole contract."""
    cases = load_cases("tests.healthy.zoo")
    assert len(cases) >= 28
    assert {case.strategy.framework for case in cases} == {"jax", "equinox", "linen", "nnx"}
    for case in cases:
        parts = ("parameters", "gradients", "optimizer_state", "batch", "forward", "step")
        assert all(getattr(case.contract, part) is not None for part in parts), case.id


@pytest.mark.parametrize("name", CASES)
def test_a_healthy_trainer_fails_nothing(found, name):
    """On any clause, and its numbers are judged."""
    assert found.get((name, "failed"), {}) == {}
    numbers = NUMBERS - ({"NUM-11"} if name in DRAWING else set())
    assert found[name, "proved"].keys() >= (numbers - IN_FLOAT32 | {"MIX-1"} if name in NARROW else numbers)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_judged_of_it_is_known(found, name):
    """Of its numbers and its communication, beside members that it does not have."""
    closed = {clause for clause in found.get((name, "not-supported"), {}) if clause.startswith(("NUM", "COM"))}
    assert closed <= LACKING
