"""Witnesses are of the machine: each core is asked, and nothing else is kept on it."""

import os

import pytest

from meshproof.timing.witness import CORES, Witnesses

BOUND = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no thread to a core")


@BOUND
def test_each_core_has_its_thread():
    """Two threads on one core would say that the machine is half as fast as it is; the caller stays where it was."""
    before = os.sched_getaffinity(0)
    witnesses = Witnesses()
    assert all(seconds > 0 for seconds in witnesses.measure().values())
    bound = [thread.submit(os.sched_getaffinity, 0).result() for thread in witnesses.threads]
    assert bound == [{core} for core in CORES]
    assert os.sched_getaffinity(0) == before


@BOUND
def test_where_no_core_may_be_chosen_witnesses_testify_all_the_same(monkeypatch):
    """A sandbox that forbids it costs precision, and no run."""

    def forbid(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    assert all(seconds > 0 for seconds in Witnesses().measure().values())


def test_a_witness_that_fails_is_no_time(monkeypatch):
    """What it raises is raised, not taken for a quick answer."""
    monkeypatch.setattr(Witnesses, "compress", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Witnesses().measure()
