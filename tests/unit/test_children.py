"""A process that is run is over afterwards, whatever it does: in time with what it said, or with where it stood."""

import os
import sys
from time import monotonic

from meshproof.children import TRACEBACK, last_words, run, stack


def test_what_it_said_and_how_it_ended_is_told():
    """Both of its outputs, and its exit code; it has nothing to read."""
    source = "import sys; print(sys.stdin.read() + 'out'); print('err', file=sys.stderr); sys.exit(3)"
    ran = run([sys.executable, "-c", source], os.environ, 30)
    assert ran.in_time and ran.code == 3 and sorted(ran.said.split()) == ["err", "out"]


def test_one_that_takes_too_long_says_where_it_stood():
    """It is ended, and its stack is in what it said."""
    source = "import time\ndef wait():\n    time.sleep(60)\nwait()"
    before = monotonic()
    ran = run([sys.executable, *TRACEBACK, "-c", source], os.environ, 1)
    assert not ran.in_time and ran.code != 0 and monotonic() - before < 30
    assert any("in wait" in line for line in stack(ran.said))


def test_what_xla_found_wrong_stands_before_the_stack():
    """Of a process that it ended; of another one the last lines."""
    check = "F1129 08:24:21.889085   13167 hlo_sharding.h:409] Check failed: !UseNamedShardingLeaf() for V3."
    calls = '  File "compiler.py", line 402 in compile\n  File "job.py", line 3 in <module>\n'
    said = f"{check}\nFatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n{calls}"
    first, fatal, *rest = last_words(said)
    assert (first, fatal) == (check, "Fatal Python error: Aborted") and rest[1:] == calls.splitlines()
    assert last_words("one\ntwo") == ["one", "two"]
