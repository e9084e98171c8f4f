"""Where the processes of a group stand, as the launcher tells it of those that it ends at a limit."""

import sys

from meshproof.launching.group import Group
from tests.waiting import within

SAVING = """
import os, threading, time

def write():
    time.sleep(99 * (os.environ["JAX_PROCESS_ID"] == "1"))

def wait_for(thread):
    thread.start()
    while True:
        time.sleep(0.01)

wait_for(threading.Thread(target=write, daemon=True))
"""


def test_a_thread_that_is_stuck_is_told_beside_the_main_thread(tmp_path):
    """Both main threads wait in the same line: of process 1 alone another thread is at one of the program's own."""
    (tmp_path / "job.py").write_text(SAVING, encoding="utf-8")
    with Group([sys.executable, str(tmp_path / "job.py")], 2, 2, tmp_path) as group:
        assert within(30, lambda: all((tmp_path / f"{number}.stack").exists() for number in range(2)))
        fault = group.watch(limit=2.0)
    waits, stuck = fault.details
    assert waits.endswith(" in wait_for") and "another thread" not in waits, fault.details
    assert f"at {tmp_path}/job.py:" in stuck and stuck.endswith(f"; another thread at {tmp_path}/job.py:5 in write")
