"""What a run's tests ask for: checkpoints, or not; the cases they compare with, and no others; and one clause that
tells why a case does not answer."""

from types import SimpleNamespace

import numpy as np
import pytest

from meshproof.cases import Case
from meshproof.observing.seen import Failed, ToldOnce
from meshproof.run.selection import read_selection
from suites.test_sharding_lowers_the_peak import shapes_of

CASE = Case("fsdp-jax-mlp@data=8", None, {"data": 8}, "cpu")


def item(clause, case=CASE):
    """A test of a clause, or of nothing of the kind."""
    mark = clause and SimpleNamespace(args=(clause,))
    return SimpleNamespace(get_closest_marker=lambda name: mark, callspec=SimpleNamespace(params={"case": case}))


def seen(selection, outcome=None):
    """What is made of this outcome, and whether checkpoints were asked for."""
    asked = []

    def observation(name, checkpoints):
        asked.append(checkpoints)
        return outcome or Failed("killed by SIGSEGV")

    return selection.observe(CASE, SimpleNamespace(observation=observation)), *asked


@pytest.mark.parametrize(
    ("clauses", "checkpoints"),
    [(["NUM-2", "CKP-3"], True), (["NUM-2", "COM-2"], False), ([None], False), ([None, "CKP-6"], True)],
)
def test_checkpoints_are_asked_for_by_their_clauses(clauses, checkpoints):
    """By none else, and whatever is no clause asks for nothing."""
    assert seen(read_selection(map(item, clauses)))[1] is checkpoints


def test_a_case_that_does_not_answer_is_told_once():
    """By RUN-1, where that is judged of this case; otherwise every clause fails, for no other would."""
    assert seen(read_selection([item("NUM-2"), item("RUN-1")]))[0] == ToldOnce("killed by SIGSEGV", "RUN-1")
    other = Case("zero1-jax-mlp@data=8", None, {"data": 8}, "cpu")
    for items in ([item("NUM-2")], [item("NUM-2"), item("RUN-1", other)], [item("NUM-2"), item("RUN-1", None)]):
        assert type(seen(read_selection(items))[0]) is Failed


def test_one_that_answers_is_what_was_seen():
    """And so is one that was not run."""
    outcome = object()
    assert seen(read_selection([item("RUN-1")]), outcome)[0] is outcome


def seen_shapes(target, **members):
    """What MEM-4 compares, and whether the case was observed for it, where one parameter of five was seen."""
    asked, layouts = [], SimpleNamespace(parameters=[SimpleNamespace(shape=(5,))])
    case = Case("fsdp", SimpleNamespace(**members), {}, target)

    def observe_also(other):
        asked.append(other)
        return SimpleNamespace(start=SimpleNamespace(layouts=layouts))

    return shapes_of(case, observe_also, SimpleNamespace(see=lambda seen: seen)), asked == [case]


def test_a_truth_tells_its_shapes_unobserved():
    """MEM-4 looks for a twin among all that are data parallel: each of them was observed, to know its shapes."""
    truth = SimpleNamespace(initial_parameters=lambda: {"w": np.zeros((4, 2)), "b": np.zeros(3)})
    assert seen_shapes("cpu", truth=truth) == ([(3,), (4, 2)], False)
    assert seen_shapes("cpu") == ([(5,)], True)


def test_no_truth_draws_values_of_real_size():
    """What is only compiled may have billions of parameters."""
    assert seen_shapes("tpu:v5e:2x4", truth=SimpleNamespace(initial_parameters=pytest.fail)) == ([(5,)], True)
