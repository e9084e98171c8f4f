"""Checkpoints that one stack saved and another restores: what differs is told by case, and a crash is a difference."""

import sys
from pathlib import Path

import pytest

from meshproof.comparison.output import markdown, write_table
from meshproof.environments import describe
from meshproof.upgrade.checkpoints import Answers, Exchange, exchange_both
from meshproof.upgrade.upgrading import judge
from tests.implementations.exchanged import EXPECTED
from tests.reports import new_report


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """What is told of two environments that are the same, but for the processes."""
    environment = describe(Path(sys.executable))
    exchange = Exchange("tests.implementations.exchanged", case_timeout=120)
    return exchange_both(exchange, [environment, environment], tmp_path_factory.mktemp("exchange"), lambda line: None)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_difference_is_told(exchanged, name):
    """Of what the older saved a regression, of what the newer saved a change: Orbax does not promise that."""
    found = [each for each in exchanged.differences if each.case.startswith(f"{name}-")]
    if EXPECTED[name] is None:
        assert found == []
        return
    assert [(each.change, each.place) for each in found] == [
        ("regressed", "CKP-4, saved by --from and restored by --to"),
        ("changed", "CKP-4, saved by --to and restored by --from"),
    ]
    assert all(each.kind == "checkpoint" and each.new.startswith(EXPECTED[name]) for each in found)


def test_what_is_the_same_is_counted(exchanged):
    """One case both ways; the one that has no `save` is none. It is said where nothing differs, too."""
    assert exchanged.same == 2
    tried = exchanged.same + len(exchanged.differences)
    told = f"checkpoints of one stack restored by the other, both ways: 2 of {tried} bitwise"
    found, lines = judge([new_report(), new_report()], exchanged=exchanged), []
    write_table(found, lines.append)
    assert told in lines and told in markdown(found) and found.as_json()["exchanged"] == told
    assert not any("saves_nothing" in each.case for each in exchanged.differences)


def test_what_neither_saves_cannot_be_told(exchanged):
    """Though all others can: nobody shall take that case for one that was read."""
    assert exchanged.cannot_tell.startswith("no checkpoint of saves_elsewhere-jax-mlp@data=8 could be saved by either ")
    assert "save left nothing at" in exchanged.cannot_tell


@pytest.mark.parametrize(("saved", "change"), [(({}, {"a": "why"}), "regressed"), (({"a": "why"}, {}), "changed")])
def test_what_one_does_not_save_is_told(tmp_path, saved, change):
    """By the stack that does not: nothing is restored of it."""

    class Kept(Exchange):
        def save(self, environment, folder):
            return Answers(1, saved[("from", "to").index(folder.name)])

        def restore(self, environment, folder, answers):
            return Answers(1, {})

    [found] = exchange_both(Kept(), [None, None], tmp_path, lambda line: None).differences
    assert (found.change, found.case, {found.old, found.new}) == (change, "a", {"a checkpoint", "why"})


def test_a_checkpoint_that_is_not_restored_is_a_regression(exchanged):
    """Of two reports that say the same otherwise; `bisect`, which runs the suites, has nothing to say of it."""
    report = new_report()
    found = judge([report, report], exchanged=exchanged)
    assert (found.outcome, found.exit_code()) == ("regressed", 1)
    assert (
        found.sentence.startswith("Regressed between two runs on jax ")
        and "first CKP-4, saved by --from" in found.sentence
    )


def test_where_nothing_is_exchanged_it_cannot_be_told(tmp_path):
    """And the reason is told."""
    environment = describe(Path(sys.executable))
    exchange = Exchange("tests.implementations.exchanged", "saves_nothing")
    found = exchange_both(exchange, [environment, environment], tmp_path, lambda line: None)
    assert found.cannot_tell == (
        "no checkpoint was saved by one stack and restored by the other; no strategy has save and restore on both, or "
        "-k names none that has: it chooses among the tests of CKP-1, whose names are checkpoints_restore_bitwise and "
        "the case's id"
    )
    assert judge([new_report()] * 2, exchanged=found).exit_code() == 2
