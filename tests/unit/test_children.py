"""A process that is run is over afterwards, whatever it does: in time with what it said, or with where it stood."""

import os
import subprocess
import sys
from time import monotonic, sleep

from meshproof.children import TRACEBACK, abort_group, end, last_words, lines, run, stack, start
from meshproof.observing.lost_processes import is_running
from tests.waiting import within

ALONE = "import sys; from meshproof.children import end_when_alone, run; end_when_alone()"


def test_what_it_said_and_how_it_ended_is_told():
    """Both of its outputs, and its exit code; it has nothing to read."""
    source = f"{ALONE}; print(sys.stdin.read() + 'out'); print('err', file=sys.stderr); sys.exit(3)"
    ran = run([sys.executable, "-c", source], os.environ, 30)
    assert ran.in_time and ran.code == 3 and sorted(ran.said.split()) == ["err", "out"]


def test_one_that_takes_too_long_says_where_it_stood():
    """It is ended, and its stack is in what it said."""
    source = "import time\ndef wait():\n    time.sleep(60)\nwait()"
    before = monotonic()
    ran = run([sys.executable, *TRACEBACK, "-c", source], os.environ, 1)
    assert not ran.in_time and ran.code != 0 and monotonic() - before < 30
    assert any("in wait" in line for line in stack(ran.said))


def test_one_whose_caller_is_killed_ends(tmp_path):
    """With what it has started, and in the midst of its work; not where the caller is busy."""
    told = tmp_path / "told"
    started = (
        f"import os, subprocess, time; child = subprocess.Popen(['sleep', '600']); open({str(told)!r}, 'w').write("
    )
    source = f"{ALONE}; {started}f'{{os.getpid()}} {{child.pid}}\\n'); time.sleep(600)"
    calls = f"import os; {ALONE}; run([sys.executable, '-c', sys.argv[1]], os.environ, 500)"
    caller = start([sys.executable, "-c", calls, source], stdin=subprocess.PIPE)
    assert within(60, lambda: told.exists() and told.read_text().endswith("\n"))
    pids = list(map(int, told.read_text().split()))
    sleep(0.2)
    assert all(map(is_running, pids))
    caller.kill()
    assert within(10, lambda: not any(map(is_running, pids)))
    end(caller)
    caller.stdin.close()


def test_what_xla_found_wrong_stands_before_the_stack():
    """Of a process that it ended; of another one the last lines."""
    check = "F1129 08:24:21.889085   13167 hlo_sharding.h:409] Check failed: !UseNamedShardingLeaf() for V3."
    calls = '  File "compiler.py", line 402 in compile\n  File "job.py", line 3 in <module>\n'
    said = f"{check}\nFatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n{calls}"
    first, fatal, *rest = last_words(said)
    assert (first, fatal) == (check, "Fatal Python error: Aborted") and rest[1:] == calls.splitlines()
    assert last_words("one\ntwo") == ["one", "two"]


CROWD = """
import subprocess, sys, threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=[99], daemon=True).start()
more = int(sys.argv[2])
if more:
    subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", sys.argv[1], sys.argv[1], str(more - 1)])
else:
    print("all are here", flush=True)
time.sleep(99)
"""


def test_a_groups_stacks_are_printed_one_after_the_other():
    """Three processes of twenty threads each: whoever printed beside another one would mix their lines."""
    with start(
        [sys.executable, *TRACEBACK, "-c", CROWD, CROWD, "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            printed = lines(process, 30.0)
            assert next(printed) == "all are here"
            abort_group(process)
            said = "\n".join(printed)
        finally:
            end(process)
    _, *dumps = said.split("Fatal Python error")
    assert len(dumps) == 3
    for dump in dumps:
        told = stack(dump)
        assert told[0] == "main thread:" and told.count("another thread:") == 20
