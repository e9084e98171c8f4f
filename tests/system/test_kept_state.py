"""What a state has beside parameters and moments is no false alarm, and is judged where it is declared."""

import pytest

from tests.healthy import kept, stored
from tests.implementations import kept as of_kept
from tests.implementations import stored as of_stored
from tests.selected import parameters
from tests.system.test_adapters import run_suites, verdicts

pytestmark = pytest.mark.newest_stack


IN_EVERY_RUN = {
    *("averages", "draws_keys", "normalises", "adafactor_in_shards"),
    *("average_undeclared", "average_never_updated", "average_in_shards", "average_of_parameters_twice"),
    *("same_key_in_every_step", "gradients_as_statistics", "adafactor_not_donated"),
}
"""Of each kind a healthy one, and the faults that together every clause catches. The others take four runs of the
suites more."""


def judged(module, name):
    """A parameter."""
    return pytest.param(module, name, id=name, marks=[] if name in IN_EVERY_RUN else [pytest.mark.thorough])


HEALTHY = [judged(module, strategy.name) for module in (kept, stored) for strategy in module.strategies()]
FAULTS = [judged(module, name) for module in (of_kept, of_stored) for name in module.CAUGHT_BY]


@pytest.fixture
def found(request):
    """The verdicts on one trainer of a module, which are those of one run of all that this session asks for."""

    def look(module, name):
        names = sorted({each["name"] for each in parameters(request) if each["module"] is module})
        return verdicts(run_suites(module.__name__, "-k", " or ".join(f"{each}-" for each in names)), name)

    return look


@pytest.mark.parametrize(("module", "name"), HEALTHY)
def test_what_is_kept_is_no_false_alarm(found, module, name):
    """A healthy trainer fails nothing, and what it shows is judged."""
    seen = found(module, name)
    assert seen["failed"] == {}
    assert seen["proved"].keys() >= module.PROVED.get(name, {"NUM-3"}) | {"MEM-1", "MEM-2", "MIX-2", "SHD-2", "SHD-5"}


@pytest.mark.parametrize(("module", "name"), FAULTS)
def test_each_fault_of_what_is_kept_is_found(found, module, name):
    """By the clauses beside it."""
    assert found(module, name)["failed"].keys() >= module.CAUGHT_BY[name]


@pytest.mark.parametrize(("module", "name"), [(of_kept, "average_undeclared")])
def test_what_is_not_declared_is_named(found, module, name):
    """MEM-1 says which arrays no part shows, and what to do."""
    message = found(module, name)["failed"]["MEM-1"]
    assert "the rest is in ['average']['hidden'], ['average']['out']: declare them in `auxiliary`" in message


@pytest.mark.parametrize(("module", "name"), [(of_kept, "average_of_parameters_twice")])
def test_an_array_in_two_parts_is_named(found, module, name):
    """With its path in each."""
    message = found(module, name)["failed"]["AUX-1"]
    assert "auxiliary has at 'average/hidden' the array that parameters has at 'hidden'" in message


@pytest.mark.thorough
def test_memory_that_a_backend_lacks_is_said():
    """It is no fault of the trainer: not supported where it goes on without, not run at all where it cannot."""
    report = run_suites("tests.implementations.stored")
    goes_on, stops = (verdicts(report, name) for name in ("no_such_memory_here", "no_such_memory"))
    assert goes_on["failed"] == {} and "the device has no bubble memory" in goes_on["not-supported"]["SHD-11"]
    assert stops["failed"] == stops["proved"] == {}
    assert "the device has no bubble memory, but device, pinned_host" in stops["not-exercised"]["SHD-11"]
