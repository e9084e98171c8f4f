"""A compiler flag that does nothing, and one that is not known any more, are caught by name; one that works is not."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.any_stack

WORKS, DOES_NOTHING = "--xla_disable_hlo_passes=fusion", "--xla_cpu_enable_fast_min_max=false"


def judged(flags, implementation="tests.implementations.kept"):
    """The exit code of FLG-1 under these flags, and the problems that it names."""
    suite = "suites/test_flags_change_the_program.py"
    command = [sys.executable, "-m", "pytest", suite, "--impl", implementation, "-q", "-rN"]
    variables = os.environ | {"XLA_FLAGS": flags}
    run = subprocess.run(command, capture_output=True, text=True, env=variables)
    return run.returncode, re.findall(r"^  - (.*)$", run.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("flags", "problems"),
    [
        (WORKS, []),
        ("--xla_gpu_graph_level=0", []),
        (
            f"{WORKS} {DOES_NOTHING}",
            [r"fast_min_max=false, target cpu: expected another.* and 7 more; leave it"],
        ),
        ("--xla_no_such=1", [r"xla_no_such=1, target cpu: .* has none of this name; no release from 0.4.38 on had it"]),
        ("--xla_cpu_matmul_tiling_m_dim=8", [r"none of this name; the last release seen to have it is jaxlib 0.4.38"]),
        ("--xla_cpu_enable_fast_math=perhaps", [r"expected a value that the compiler takes, it says: .*'perhaps'"]),
    ],
    ids=["works", "of another compiler", "does nothing", "unknown", "dropped", "of no such value"],
)
def test_a_flag_is_judged_by_what_it_does(flags, problems):
    """Each that is wrong is named with its value, what is wrong and what to do; the others are not."""
    code, found = judged(flags)
    assert (code, len(found)) == (1 if problems else 0, len(problems)), found
    assert all(re.search(problem, line) for problem, line in zip(problems, found, strict=True)), found


def test_a_step_without_a_program_is_passed_over():
    """The next strategy is looked at."""
    code, found = judged(DOES_NOTHING, "tests.implementations.unjitted")
    assert code == 1 and found == [
        f"{DOES_NOTHING}, target cpu: expected another program with it than without, saw the same of "
        f"plain-jax-mlp@data=8; leave it away"
    ]
