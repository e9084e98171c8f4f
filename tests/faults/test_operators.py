"""The suites see: what an operator plants is caught, and there is something to plant in every strategy."""

import re
from collections import defaultdict

import pytest

import reference_impl
from meshproof.cases import case_id
from tests.saboteurs.operators import OPERATORS, mutants
from tests.saboteurs.operators.bases import bases
from tests.saboteurs.operators.matrix import fates, judge, kept, table

pytestmark = pytest.mark.newest_stack
"""CI runs them on one stack: `docs/faults.md` has all of them, judged on the other."""

SOME = "fsdp_shard_map-jax-mlp or zero1-jax or expert_parallel-jax"
"""Pages by hand and annotated; `make mutants` judges all of them."""


@pytest.fixture(scope="module")
def found():
    """What became of the mutants of some pages, judged now, on the installed stack; no healthy one failed."""
    return judge("-k", SOME)


@pytest.mark.thorough
def test_every_fault_is_caught(found):
    """No mutant survives, and none is caught only because it could not train; but for the lack of a batch, all do."""
    assert len({fate.operator for fate in found}) > 25
    assert [f"{fate.operator} of {fate.strategy}" for fate in found if not fate.caught_by] == []
    assert {fate.operator for fate in found if not fate.trained} == {"last_batch_lost"}


@pytest.mark.thorough
def test_the_usual_tests_see_less(found):
    """Most faults pass a loss within 10 %, and none of those in numbers alone is counted among the collectives."""
    assert sum(fate.seen_by_loss_10_percent for fate in found) < len(found) / 2
    assert not any(fate.seen_by_counts for fate in found if fate.operator == "learning_rate_scaled")


@pytest.mark.thorough
def test_the_matrix_has_a_row_for_each_operator(found):
    """With the number of cases that it harmed, of those that were caught, and the clauses that caught them."""
    rows = dict(line.strip("| ").split(" | ", 1) for line in table(found).splitlines()[2:])
    assert list(rows) == [name.replace("_", " ") for name in OPERATORS]
    count = sum(fate.operator == "donation_lost" for fate in found)
    assert rows["donation lost"].startswith(f"{count} | {count} | 0 | 0 | 0 | ") and "MEM-2" in rows["donation lost"]


def test_what_is_kept_is_of_these_mutants():
    """The kill matrix that was written down is that of today's operators and strategies, and no mutant survived."""
    written = kept()
    assert {(fate.strategy, fate.operator) for fate in written} == {(case_id(one), name) for one, name, _ in mutants()}
    assert [fate for fate in written if not fate.caught_by] == []


def test_a_mutant_without_its_healthy_strategy_is_refused():
    """There is nothing to compare it with; the error names both."""
    base, _, form = next(mutants())
    report = {"clauses": [], "cases": [{"id": case_id(form)}]}
    with pytest.raises(ValueError, match=re.escape(f"{case_id(form)} was chosen without {case_id(base)}")):
        list(fates(report))


def test_every_strategy_has_faults_of_its_own_kind():
    """Beside the faults that any trainer can have, every distributed strategy has at least three more."""
    harmed = defaultdict(set)
    for healthy, name, _ in mutants():
        harmed[case_id(healthy)].add(name)
    for_all = set.intersection(*harmed.values())
    assert len(OPERATORS) - len(for_all) > 20
    distributed = [case_id(form) for form in bases() if form.name != "single_device"]
    assert {name: len(harmed[name] - for_all) for name in distributed if len(harmed[name] - for_all) < 3} == {}


def test_one_device_judges_without_the_fault():
    """A mutant that brings one device to be compared with brings that of the healthy strategy."""
    own = [(healthy, form) for healthy, _, form in mutants() if hasattr(healthy, "single_device")]
    assert {healthy.name for healthy, _ in own} >= {"sync_batch_norm", "sync_batch_norm_pmap"}
    assert all(form.single_device("float32") == healthy.single_device("float32") for healthy, form in own)


def test_every_page_is_tried():
    """Whatever framework, model or modifier the book has it in: each page is harmed."""
    assert {form.name for form in bases()} == {form.name for form in reference_impl.strategies()}
