"""A limit to processor time forgives a slow machine, and no slow program."""

import pytest

from tests import yardstick
from tests.yardstick import QUIET, fixed_work, quiet_seconds


def machine(monkeypatch, *slowness):
    """Machines on which the fixed work takes so many times as long, one after the other; the last stays."""
    each = iter(slowness)
    last = [1.0]

    def work():
        last[0] = next(each, last[0])
        return QUIET * last[0]

    monkeypatch.setattr(yardstick, "fixed_work", work)


@pytest.mark.parametrize(("slow", "seconds", "quiet"), [(1, 2.4, 2.4), (2, 2.4, 1.2), (0.5, 2.4, 2.4)])
def test_seconds_are_those_of_a_quiet_core(monkeypatch, slow, seconds, quiet):
    """Half as many where the machine was half as fast; a faster machine changes nothing."""
    machine(monkeypatch, slow)
    assert quiet_seconds(lambda: seconds, enough=2.0) == pytest.approx(quiet)


def test_a_machine_that_was_slow_for_a_moment_excuses_nothing(monkeypatch):
    """The faster of the work before and after counts."""
    machine(monkeypatch, 3, 1)
    assert quiet_seconds(lambda: 2.4, enough=2.0, tries=1) == 2.4


def test_the_least_of_several_tries_counts(monkeypatch):
    """And none is made once one is good enough."""
    machine(monkeypatch, 1)
    tried = []
    assert quiet_seconds(lambda: tried.append(0) or 4.0 - len(tried), enough=2.0) == 1.0
    assert len(tried) == 3


def test_a_slow_program_is_slow_on_a_busy_machine_too():
    """Measured: ten times the fixed work is about ten times as long, whatever runs beside it."""
    assert quiet_seconds(lambda: sum(fixed_work() for _ in range(10)), enough=0) > 5 * QUIET
