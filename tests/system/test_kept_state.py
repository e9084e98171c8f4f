"""What a state has beside parameters and moments is no false alarm, and is judged where it is declared."""

import pytest

from tests.healthy import kept as healthy
from tests.implementations import kept as sick
from tests.system.test_adapters import run_suites, verdicts


@pytest.mark.parametrize("name", [strategy.name for strategy in healthy.strategies()])
def test_what_is_kept_is_no_false_alarm(name):
    """A healthy trainer fails nothing, and what it shows is judged."""
    found = verdicts(run_suites("tests.healthy.kept"), name)
    assert found["failed"] == {}
    assert found["proved"].keys() >= healthy.PROVED.get(name, {"NUM-3"}) | {"MEM-1", "MEM-2", "MIX-2", "SHD-2", "SHD-5"}


@pytest.mark.parametrize("name", sick.CAUGHT_BY)
def test_each_fault_of_what_is_kept_is_found(name):
    """By the clauses beside it."""
    assert verdicts(run_suites("tests.implementations.kept"), name)["failed"].keys() >= sick.CAUGHT_BY[name]


def test_what_is_not_declared_is_named():
    """MEM-1 says which arrays no part shows, and what to do."""
    message = verdicts(run_suites("tests.implementations.kept"), "average_undeclared")["failed"]["MEM-1"]
    assert "the rest is in ['average']['hidden'], ['average']['out']: declare them in `auxiliary`" in message


def test_an_array_in_two_parts_is_named():
    """With its path in each."""
    message = verdicts(run_suites("tests.implementations.kept"), "average_of_parameters_twice")["failed"]["AUX-1"]
    assert "auxiliary has at 'average/hidden' the array that parameters has at 'hidden'" in message


def test_memory_that_a_backend_lacks_is_said():
    """It is no fault of the trainer: not supported where it goes on without, not run at all where it cannot."""
    report = run_suites("tests.implementations.kept")
    goes_on, stops = (verdicts(report, name) for name in ("no_such_memory_here", "no_such_memory"))
    assert goes_on["failed"] == {} and "the device has no bubble memory" in goes_on["not-supported"]["SHD-11"]
    assert stops["failed"] == stops["proved"] == {}
    assert "the device has no bubble memory, but device, pinned_host" in stops["not-exercised"]["SHD-11"]
