"""A comparison answers while its user waits, and starts no JAX for it."""

import subprocess
import sys
import time

from meshproof.comparison import compare
from tests.comparing import LEAF, report
from tests.yardstick import quiet_seconds


def test_two_large_reports_are_compared_in_a_second():
    """A hundred cases of a hundred leaves, on a quiet core; jax is not imported for it."""
    old = report()
    old["cases"] = [
        case | {"id": f"{case['id']}{n}", "shardings": {f"w{k}": LEAF for k in range(100)}}
        for n in range(50)
        for case in old["cases"]
    ]

    def seconds():
        start = time.process_time()
        assert compare(old, old).counts["same"] > 10_000
        return time.process_time() - start

    assert quiet_seconds(seconds, 1) < 1
    code = "import sys, meshproof.cli, meshproof.comparison.output; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
