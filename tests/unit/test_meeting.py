"""Processes that tell each other what they have: in rounds, and whoever is missing, gone or silent is named."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from meshproof.launching import meeting, peers
from meshproof.launching.group import free_port
from meshproof.launching.meeting import Meeting, PeerError
from meshproof.launching.peers import Peers, by_as_many, find_peers, is_launched


def meet(count, *parts):
    """What comes of each part, a function of a `Meeting` that has met; its error's words where it raises."""
    address = f"127.0.0.1:{free_port()}"

    def take_part(number):
        try:
            with Meeting(Peers(address, count, number)) as own:
                return parts[number](own)
        except PeerError as error:
            return str(error)

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(take_part, range(len(parts))))


def says(own):
    """Two rounds, of which the second may be sent before the first is answered."""
    return [own.exchange({"number": own.peers.number}, 5.0, "a number"), own.exchange("x" * 100_000, 5.0, "much")]


def test_every_process_hears_all():
    """In their order, in every round, however long it is."""
    everyone = [[{"number": 0}, {"number": 1}, {"number": 2}], ["x" * 100_000] * 3]
    assert meet(3, says, says, says) == [everyone] * 3


def test_who_has_gone_is_named():
    """At once, in every process that is left."""
    begun = time.monotonic()
    assert meet(3, says, says, lambda own: "left") == [*["process 2 has gone, expected a number"] * 2, "left"]
    assert time.monotonic() - begun < 3


def test_who_is_silent_is_named():
    """When the limit of the round is over."""

    def sleeps(own):
        time.sleep(2)

    def hears(own):
        return own.exchange(0, 0.5, "its tests")

    told = "process 1 said nothing for 0.5 s, expected its tests"
    assert meet(3, hears, sleeps, hears) == [told, None, told]


def test_process_0_has_gone():
    """The others hear of it."""
    assert meet(2, lambda own: None, says)[1] == "process 0 has gone, expected a number of all"


def test_who_does_not_come_is_named(monkeypatch):
    """By process 0, to all who have come."""
    monkeypatch.setattr(meeting, "JOINING", 0.7)
    assert meet(3, says, says) == ["process 2 of 3 did not come within 0.7 s"] * 2


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([(3, 1), (3, 1)], "two processes are process 1 of 3"),
        ([(4, 2)], "process 2 counts 4 processes, process 0 counts 3"),
    ],
)
def test_who_cannot_be_one_of_them_is_named(others, told):
    """A number twice, or another number of processes."""
    address = f"127.0.0.1:{free_port()}"

    def comes(count, number):
        with suppress(PeerError), Meeting(Peers(address, count, number)) as own:
            own.exchange(0, 2.0, "a number")

    with ThreadPoolExecutor(2) as pool:
        for other in others:
            pool.submit(comes, *other)
        with pytest.raises(PeerError, match=told), Meeting(Peers(address, 3, 0)):
            pass


WHOLE = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:8476", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}


def test_peers_are_those_of_the_environment():
    """And a process is launched where the launcher's folder is named beside them."""
    assert find_peers(WHOLE) == Peers("10.0.0.1:8476", 2, 1)
    assert is_launched(WHOLE | {"MESHPROOF_MARKS": "/tmp"}) and not is_launched(WHOLE)  # noqa: S108


def test_a_test_is_run_again_by_as_many_processes():
    """Alone it would see no fault of a second one."""
    assert by_as_many("pytest 'a'", WHOLE | {"MESHPROOF_MARKS": "marks"}) == "meshproof launch -n 2 -- pytest 'a'"
    assert by_as_many("pytest 'a'", WHOLE) == "pytest 'a' --distributed"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"JAX_PROCESS_ID": None}, "JAX_PROCESS_ID: not set"),
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES is 'two', expected a whole number"),
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID is 2, expected one from 0 to 1"),
        ({"JAX_COORDINATOR_ADDRESS": "10.0.0.1"}, "JAX_COORDINATOR_ADDRESS is '10.0.0.1', expected HOST:PORT"),
    ],
)
def test_what_is_said_by_halves_is_an_error(changed, told):
    """It names the variable."""
    with pytest.raises(ValueError, match=told):
        find_peers({name: value for name, value in (WHOLE | changed).items() if value is not None})


def test_peers_are_those_of_a_cluster(monkeypatch):
    """As `jax.distributed.initialize` finds them: here of Slurm, whose variables JAX reads."""
    slurm = {
        "SLURM_JOB_ID": "1234",
        "SLURM_STEP_NODELIST": "node[3-4]",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
    }
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    found = find_peers({})
    assert (found.address.partition(":")[0], found.count, found.number) == ("node3", 2, 1)


def test_no_cluster_is_an_error():
    """It says what to set."""
    with pytest.raises(ValueError, match="JAX knows no cluster here, and none of JAX_COORDINATOR_ADDRESS"):
        peers.detected()
