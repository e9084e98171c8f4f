"""Who is missing among several processes, or there twice, is named in each of them, and in time."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshproof.launching.group import free_port
from reference_impl.lifecycle.roll_call import call_the_roll


def call(*processes, patience=1.5):
    """What is raised in each of these processes, ``(number, count)``, which come one after the other."""
    address = f"127.0.0.1:{free_port()}"

    def come(place):
        number, count = processes[place]
        time.sleep(0.2 * place)
        try:
            call_the_roll(address, count, number, patience)
        except RuntimeError as error:
            return str(error).partition(" (at ")[0]
        return ""

    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(come, range(len(processes))))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_all_who_come_once_go_on(order):
    """In whatever order they come."""
    assert call(*[(number, 3) for number in order]) == ["", "", ""]


def test_who_does_not_come_is_named_in_every_process():
    """Within the patience of process 0."""
    begun = time.monotonic()
    told = call((0, 4), (2, 4))
    assert told == ["process 1 and 3 of 4 did not come: expected each to be started, with its own number"] * 2
    assert time.monotonic() - begun < 5


def test_two_processes_of_one_number_are_told_apart():
    """All stop: nobody can know which of the two was meant."""
    assert (
        call((0, 3), (1, 3), (1, 3))
        == ["two processes are process 1 of 3: expected each to have a number of its own"] * 3
    )


def test_two_processes_of_number_0():
    """The second one cannot listen where the first does."""
    first, second, third = call((0, 2), (0, 2), (1, 2))
    assert first == third == ""
    assert second.startswith("process 0 cannot listen: Address already in use; expected one process 0")


@pytest.mark.parametrize("other", [(1, 3), (2, 3)])
def test_another_number_of_processes_than_process_0_says(other):
    """JAX goes on with the number of process 0 (jax 0.12.0.1)."""
    told = f"process {other[0]} counts 3 processes, process 0 counts 2: expected one number everywhere"
    assert call((0, 2), other) == [told] * 2


def test_one_who_comes_when_all_have_met():
    """The coordinator that listens by then is no process 0 that asks."""
    with socket.create_server(("127.0.0.1", 0)) as coordinator, ThreadPoolExecutor(1) as pool:
        address = f"127.0.0.1:{coordinator.getsockname()[1]}"
        asking = pool.submit(call_the_roll, address, 2, 1, 1.5)
        with coordinator.accept()[0] as asked:
            asked.sendall(b"\0\0\x12\x04 HTTP/2 settings")
        with pytest.raises(RuntimeError, match="process 0 does not answer: all may have met already"):
            asking.result()


def test_no_process_0():
    """Nobody listens at its address."""
    [told] = call((1, 2))
    assert told.startswith("process 0 did not come: expected it to be started, and to be reached there (")


def test_a_stranger_is_not_counted():
    """Whoever connects and speaks otherwise is not a process of the group."""
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        zero = pool.submit(call_the_roll, f"127.0.0.1:{port}", 2, 0, 5.0)
        time.sleep(0.2)
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\n")
        pool.submit(call_the_roll, f"127.0.0.1:{port}", 2, 1, 5.0).result()
        zero.result()


@pytest.mark.parametrize("address", ["", "localhost", "10.0.0.1:http", ":8476", "10.0.0.1:99999"])
def test_what_is_no_address_is_refused(address):
    """Before anybody waits."""
    with pytest.raises(ValueError, match=re.escape(f"address is {address!r}, expected HOST:PORT")):
        call_the_roll(address, 2, 1, 60.0)
