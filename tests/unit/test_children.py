"""A process that is run is over afterwards, whatever it does: in time with what it said, or with where it stood."""

import os
import sys
from time import monotonic

from meshproof.children import TRACEBACK, run, stack


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
