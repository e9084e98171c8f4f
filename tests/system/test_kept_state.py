"""What a state has beside parameters and moments is no false alarm, and is judged where it is declared."""

import pytest

from tests.healthy import kept, stored
from tests.implementations import kept as of_kept
from tests.implementations import stored as of_stored
from tests.system.test_adapters import run_suites, verdicts

pytestmark = pytest.mark.any_stack


def judged(module, name):
    """A parameter; what is stored otherwise than it is computed takes two runs of the suites more."""
    return pytest.param(module, name, id=name, marks=[pytest.mark.thorough] if module in (stored, of_stored) else [])


HEALTHY = [judged(module, strategy.name) for module in (kept, stored) for strategy in module.strategies()]
FAULTS = [judged(module, name) for module in (of_kept, of_stored) for name in module.CAUGHT_BY]


@pytest.mark.parametrize(("module", "name"), HEALTHY)
def test_what_is_kept_is_no_false_alarm(module, name):
    """A healthy trainer fails nothing, and what it shows is judged."""
    found = verdicts(run_suites(module.__name__), name)
    assert found["failed"] == {}
    assert found["proved"].keys() >= module.PROVED.get(name, {"NUM-3"}) | {"MEM-1", "MEM-2", "MIX-2", "SHD-2", "SHD-5"}


@pytest.mark.parametrize(("module", "name"), FAULTS)
def test_each_fault_of_what_is_kept_is_found(module, name):
    """By the clauses beside it."""
    assert verdicts(run_suites(module.__name__), name)["failed"].keys() >= module.CAUGHT_BY[name]


def test_what_is_not_declared_is_named():
    """MEM-1 says which arrays no part shows, and what to do."""
    message = verdicts(run_suites("tests.implementations.kept"), "average_undeclared")["failed"]["MEM-1"]
    assert "the rest is in ['average']['hidden'], ['average']['out']: declare them in `auxiliary`" in message


def test_an_array_in_two_parts_is_named():
    """With its path in each."""
    message = verdicts(run_suites("tests.implementations.kept"), "average_of_parameters_twice")["failed"]["AUX-1"]
    assert "auxiliary has at 'average/hidden' the array that parameters has at 'hidden'" in message


@pytest.mark.thorough
def test_memory_that_a_backend_lacks_is_said():
    """It is no fault of the trainer: not supported where it goes on without, not run at all where it cannot."""
    report = run_suites("tests.implementations.stored")
    goes_on, stops = (verdicts(report, name) for name in ("no_such_memory_here", "no_such_memory"))
    assert goes_on["failed"] == {} and "the device has no bubble memory" in goes_on["not-supported"]["SHD-11"]
    assert stops["failed"] == stops["proved"] == {}
    assert "the device has no bubble memory, but device, pinned_host" in stops["not-exercised"]["SHD-11"]
