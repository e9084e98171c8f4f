"""The suites see: every operator's fault is caught on every strategy, and the record of that is of these mutants."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from meshproof.cases import case_id
from reference_impl.__main__ import insert
from tests.saboteurs.operators import OPERATORS, mutants
from tests.saboteurs.operators.__main__ import judge
from tests.saboteurs.operators.bases import bases
from tests.saboteurs.operators.equivalent import EQUIVALENT
from tests.saboteurs.operators.matrix import KILLED, NAME, Fate, table

ROOT = Path(__file__).parents[1]
SOME = "fsdp_shard_map-jax-mlp or zero1-jax or pipeline_gpipe or expert_parallel-jax"
"""Four pages, of four kinds; `make mutants` judges all of them."""


@pytest.fixture(scope="module")
def record():
    """What became of every mutant, as the repository has it."""
    return json.loads(KILLED.read_text(encoding="utf-8"))


def test_some_strategies_faults_are_all_caught():
    """Judged now, on the installed stack: no mutant of these pages survives, and none of the healthy ones fails."""
    found = judge("-k", SOME)
    assert len({fate.operator for fate in found}) > 25
    assert [f"{fate.operator} of {fate.strategy}" for fate in found if fate.survived] == []


def test_the_record_is_of_these_mutants(record):
    """Whoever adds a strategy or an operator runs `make mutants` again: the record has each mutant, and no other."""
    assert {(fate["operator"], fate["strategy"]) for fate in record} == {
        (name, case_id(healthy)) for healthy, name, _ in mutants()
    }


def test_no_survivor_is_on_record(record):
    """Every recorded mutant was caught, or is argued to be no fault; what is argued so was not caught."""
    fates = [Fate(**entry) for entry in record]
    assert [fate for fate in fates if fate.survived] == []
    argued = {(name, strategy) for name, strategies in EQUIVALENT.items() for strategy in strategies}
    assert argued == {(fate.operator, fate.strategy) for fate in fates if not fate.caught_by}


def test_every_strategy_has_faults_of_its_own_kind():
    """Beside the faults that any trainer can have, every distributed strategy has at least three more."""
    harmed = defaultdict(set)
    for healthy, name, _ in mutants():
        harmed[case_id(healthy)].add(name)
    for_all = set.intersection(*harmed.values())
    assert len(OPERATORS) - len(for_all) > 20
    distributed = [case_id(form) for form in bases() if form.name != "single_device"]
    assert {name: len(harmed[name] - for_all) for name in distributed if len(harmed[name] - for_all) < 3} == {}


def test_the_readme_has_the_kill_matrix(record):
    """README.md shows the record as it is: `make mutants`."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert insert(readme, NAME, table(record)) == readme
