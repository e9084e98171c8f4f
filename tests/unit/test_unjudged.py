"""What a run did not judge: which clauses, of which trainer, why, and what would open them."""

import pytest

from meshproof.judging.judge import Judge
from meshproof.judging.records import Record
from meshproof.observing.seen import NotSupported
from meshproof.run.summary import never_exercised, one_cause
from meshproof.run.unjudged import MOST, opened, unjudged, unseen

CASES = {"mine@data=8": "mine", "other@data=8": "other"}
TARGETS = dict.fromkeys(CASES, "cpu")


def record(clause, status, reason="", case="mine@data=8", test="a"):
    """A test of a clause."""
    return Record(f"suites/test_a.py::test_{test}_{clause}[{case}]", clause, "It MUST.", case, status, message=reason)


def test_what_is_worst_comes_first():
    """Numbers before memory, by reason, with the trainers and the option that makes it a failure."""
    found = [
        record("MEM-1", "not-supported", "the contract promises no layout of the parameters"),
        record("NUM-3", "not-supported", "the implementation brings no truth"),
        record("NUM-2", "not-supported", "the implementation brings no truth"),
        record("NUM-2", "not-supported", "the implementation brings no truth", "other@data=8"),
    ]
    assert unjudged(found, CASES, TARGETS) == [
        "NOT JUDGED, worst first (--require NUM,MEM makes it a failure):",
        "  NUM-2, NUM-3 of mine and 1 more: the implementation brings no truth: bring single_device(dtype)",
        "  MEM-1 of mine: the contract promises no layout of the parameters: declare it in its Contract",
    ]


@pytest.mark.parametrize("status", ["proved", "failed", "expected-failure"])
def test_a_clause_that_one_test_judged_is_judged(status):
    """Of one of its cases. What another trainer lacks is told of that one."""
    found = [record("NUM-2", status), record("NUM-2", "not-supported", "no")]
    assert unjudged(found, CASES, TARGETS) == []
    [_, line] = unjudged([*found, record("NUM-2", "not-supported", "no", "other@data=8")], CASES, TARGETS)
    assert line == "  NUM-2 of other: no"


def test_each_test_of_a_clause_must_come_to_a_verdict():
    """As --require demands it: the loss of each step was judged, and that of the forward pass was not."""
    found = [record("NUM-4", "proved"), record("NUM-4", "not-supported", "no", test="b")]
    assert unjudged(found, CASES, TARGETS)[1:] == ["  NUM-4 of mine: no"]


def test_what_is_judged_once_a_run_is_of_no_strategy():
    """As the data that it reads; not where it was judged."""
    reason = "the implementation has no data_iterator(process, processes): no module; see docs/adapters.md"
    found = [record("DAT-1", "not-supported", reason, case=""), record("CKP-6", "proved", case="")]
    assert unjudged(found, CASES, TARGETS)[1:] == [f"  DAT-1: {reason}"]


def test_many_reasons_are_counted():
    """A summary is short."""
    found = [record("NUM-2", "not-supported", f"reason {n}", test=f"{n}") for n in range(MOST + 3)]
    *_, last = unjudged(found, CASES, TARGETS)
    assert last == "  and for 3 more reasons: pytest's -rs has them all"


def test_cases_of_a_strategy_that_a_test_does_not_judge_are_one_line():
    """As each is told of another twin."""
    ids = ["mine@data=8", "mine+bf16@data=8", "mine+masked@data=8"]
    found = [record("CKP-2", "not-supported", f"reason {n}", case) for n, case in enumerate(ids)]
    [_, line] = unjudged(found, dict.fromkeys(ids, "mine"), dict.fromkeys(ids, "cpu"))
    assert line == "  CKP-2 of mine: reason 0; of its other cases, 2 more reasons"


def test_what_one_target_closes_is_told_of_that_one():
    """Judged on the other, closed there for another reason, or not exercised there: none of it hides the reason."""
    gpu = "mine@data=8:gpu:h200:8"
    cases, targets = {**CASES, gpu: "mine"}, {**TARGETS, gpu: "gpu:h200:8"}
    found = [record("ERR-1", "proved"), record("ERR-1", "not-supported", "no", gpu)]
    found += [record("NUM-2", "not-supported", "why"), record("NUM-2", "not-exercised", "it compiles only", gpu)]
    assert unjudged(found, cases, targets)[1:] == ["  NUM-2 of mine on cpu: why", "  ERR-1 of mine on gpu:h200:8: no"]


@pytest.mark.parametrize(
    ("reason", "opens"),
    [
        ("the strategy has no gradients", ": bring gradients(state, batch)"),
        ("the strategy has no optimizer_state and no make_mesh", ": bring optimizer_state(state), make_mesh"),
        ("the implementation has no GPipe form to compare with", ": list that one in strategies(), too"),
        ("the implementation has no training_run(folder): no module; see docs/adapters.md", ""),
        ("init has no lower(): hand over the jitted function itself, or give it one", ""),
    ],
)
def test_each_reason_says_what_opens_it(reason, opens):
    """A member by its call."""
    assert opened(reason) == reason + opens


@pytest.mark.parametrize("word", ["NUM", "NUM-2"])
def test_what_is_required_fails_where_it_is_not_supported(word):
    """By its group, or alone; what was judged is as it was."""
    judge = Judge(record("NUM-2", "not-exercised"), "pytest x", required=[word])
    assert judge.see(3) == 3
    with pytest.raises(pytest.fail.Exception) as told:
        judge.see(NotSupported("the strategy has no gradients"))
    message = str(told.value)
    assert message.startswith("NUM-2 is not judged of mine@data=8: It MUST.")
    assert f"the strategy has no gradients; --require {word} demands a verdict" in message


@pytest.mark.parametrize("word", ["COM", "NUM-22", "NUM-3"])
def test_what_is_not_required_is_skipped(word):
    """Another group, another clause."""
    judge = Judge(record("NUM-2", "not-exercised"), "pytest x", required=[word])
    with pytest.raises(pytest.skip.Exception):
        judge.see(NotSupported("the strategy has no gradients"))
    assert judge.record.status == "not-supported"


def test_a_required_clause_that_judged_nothing_is_told():
    """By its number, for a group has clauses for other strategies; what was judged in any way is."""
    records = [record("NUM-2", "not-supported", "no"), record("NUM-9", "not-exercised", case="")]
    assert never_exercised(records, ["NUM", "NUM-2", ""]) == []
    [line] = never_exercised(records, ["NUM", " NUM-9"])
    assert line.startswith("REQUIRED AND NOT EXERCISED: NUM-9: no case of this run is one that it judges")


def test_an_error_that_fails_many_tests_is_told_once():
    """Of each case, with how many; an error of two tests is read beside them."""
    lost, odd = "LookupError: the state has no array below 'a'", "TypeError: odd"
    records = [record(f"NUM-{number}", "failed", f"NUM is violated\n  - it raised {lost}") for number in (1, 2)]
    records += [record("SHD-1", "failed", f"SHD-1 is violated\n  - {lost}\nrun it alone: pytest")]
    records += [record(f"COM-{number}", "failed", f"COM is violated\n  - {odd}") for number in (1, 2)]
    assert one_cause(records) == [f"ONE CAUSE of 3 tests that failed of mine@data=8: {lost}"]


def test_what_its_own_run_cannot_see_is_told_once():
    """Of trainers that bring no other truth."""
    assert unseen([], CASES, set()) == []
    [line] = unseen([], CASES, {"mine", "other"})
    assert line.startswith(
        "NOT SEEN of mine and 1 more, whose truth is its own run on one device: what that does wrong"
    )


def test_a_wide_bound_is_told():
    """By clause, with what is held to less."""
    found = [
        record("MIX-1", "proved", "gradients may be 9.0 % off", "other@data=8"),
        record("MIX-1", "proved", "gradients may be 3.1 % off"),
        record("MIX-1", "proved", test="b"),
        record("NUM-3", "failed", "it differs"),
        record("NUM-4", "proved", "judged otherwise"),
    ]
    [line] = unseen(found, CASES, set())
    assert line.startswith("NOT SEEN of mine and 1 more: gradients may be 3.1 % off; the same trainer in float32")
    [line] = unseen([record("NUM-3", "proved", "float32 is its truth")], CASES, set())
    assert line.startswith("NOT SEEN of mine: float32 is its truth; a step that jax.make_jaxpr can trace")
