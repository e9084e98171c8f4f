"""Bytes that depend on the data, as of a collective in a branch: without a promise they are said, else they fail."""

from types import SimpleNamespace

import pytest

from meshproof.contract import Contract
from meshproof.hlo.schedule import Flight, Work
from meshproof.judging.judge import Judge
from meshproof.judging.records import Record
from suites.test_bytes_on_the_wire import test_bytes_on_the_wire as judge_wire
from suites.test_communication_is_hidden import test_communication_is_hidden as judge_overlap

FLIGHT = Flight("all-reduce", ("data",), "forward", None, 28, False, Work(), 1)
UNKNOWN = SimpleNamespace(operation="all-reduce", axes=("data",), bytes=None, wire_bytes=None)


@pytest.mark.parametrize(
    ("clause", "promise"), [(judge_overlap, {"overlap": 0.5}), (judge_wire, {"best_on_wire": True})], ids=["12", "13"]
)
def test_only_a_promise_fails(clause, promise):
    """The message names what is unknown."""
    step = SimpleNamespace(flights=(FLIGHT,), collectives=(UNKNOWN,))
    for promised, expected in (({}, pytest.skip.Exception), (promise, pytest.fail.Exception)):
        case = SimpleNamespace(contract=Contract(**promised), target="gpu:h200:8", mesh={"data": 8})
        judge = Judge(Record("a_test", "COM", "Bytes", None), "pytest a_test")
        with pytest.raises(expected, match=r"unknown, expected a number"):
            clause(case, SimpleNamespace(programs=SimpleNamespace(step=step)), judge)
