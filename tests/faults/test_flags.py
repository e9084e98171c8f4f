"""A compiler flag that does nothing, and one that is not known any more, are caught by name; one that works is not."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.newest_stack

WORKS, DOES_NOTHING = "--xla_disable_hlo_passes=fusion", "--xla_cpu_enable_fast_min_max=false"


def judged(flags, implementation="tests.implementations.kept"):
    """The exit code of FLG-1 under these flags, and the problems that it names."""
    suite = "suites/test_flags_change_the_program.py"
    command = [sys.executable, "-m", "pytest", suite, "--impl", implementation, "-q", "-rN"]
    variables = os.environ | {"XLA_FLAGS": flags}
    run = subprocess.run(command, capture_output=True, text=True, env=variables)
    return run.returncode, re.findall(r"^  - (.*)$", run.stdout, re.MULTILINE)


WRONG = {
    DOES_NOTHING: "expected another program with it than without, saw the same of .* and 7 more; leave it away",
    "--xla_no_such=1": "expected a flag of .* has none of this name; no release from 0.4.38 on had it",
    "--xla_cpu_matmul_tiling_m_dim=8": "has none of this name; the last release seen to have it is jaxlib 0.4.38",
    "--xla_cpu_enable_fast_math=perhaps": "expected a value that the compiler takes, it says: .*'perhaps'",
}
"""Of each flag that is wrong what is said of it."""


def test_a_flag_that_works_is_not_named():
    """Nor one of another compiler."""
    assert judged(f"{WORKS} --xla_gpu_graph_level=0") == (0, [])


def test_each_flag_that_is_wrong_is_named():
    """With its value, what is wrong and what to do; that which works beside them is not."""
    code, found = judged(" ".join([WORKS, *WRONG]))
    assert (code, len(found)) == (1, len(WRONG)), found
    for line, (flag, problem) in zip(found, WRONG.items(), strict=True):
        assert line.startswith(f"{flag}, target cpu: ") and re.search(problem, line), line


def test_a_step_without_a_program_is_passed_over():
    """The next strategy is looked at."""
    code, found = judged(DOES_NOTHING, "tests.implementations.unjitted")
    assert code == 1 and found == [
        f"{DOES_NOTHING}, target cpu: expected another program with it than without, saw the same of "
        f"plain-jax-mlp@data=8; leave it away"
    ]
