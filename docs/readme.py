"""What README.md shows of the code beside it: five figures, a page of the book, a failure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from docs.faults import faults
from meshproof.judging.spec import read_clauses
from reference_impl import strategies
from tests.saboteurs.operators.matrix import KEPT, kept

PAGE = Path("reference_impl/strategies/fsdp.py")
WINDOW = Path("docs/compatibility.md")
FAILURE = (
    "pytest suites/test_each_axis_carries_its_own.py --impl tests.saboteurs -k fsdp_tensor_parallel_by_storage_alone"
)
SHOWN = 2
"""How many findings of the failure are shown."""


def figures() -> str:
    """Why to believe the suites, in five figures, each from where it is kept."""
    fates, forms, stacks = kept(), list(strategies()), supported(WINDOW.read_text(encoding="utf-8"))
    operators, harmed = len({fate.operator for fate in fates}), len({fate.strategy for fate in fates})
    caught = sum(bool(fate.caught_by) for fate in fates)
    by_loss, by_count = sum(fate.seen_by_loss_10_percent for fate in fates), sum(fate.seen_by_counts for fate in fates)
    pages, models = len({form.name for form in forms}), len({form.model for form in forms})
    judged = json.loads(KEPT.read_text(encoding="utf-8"))["stack"]["jax"]
    (oldest, _), (newest, tests) = stacks[0], stacks[-1]
    return "\n".join(
        [
            f"- **{caught} of {len(fates)} faults caught** that {operators} operators plant in {harmed} cases "
            f"(jax {judged}). A last loss within 10 % would have missed {len(fates) - by_loss}, a count of "
            f"collectives {len(fates) - by_count}. [Fault by fault](docs/faults.md)",
            f"- **{len(faults())} faults planted by hand**, each caught by the clauses named beside it",
            f"- **{len({clause.id for clause in read_clauses()})} clauses**, each with the test that judges it: "
            "[SPEC.md](SPEC.md)",
            f"- **{pages} strategies** on {models} models, each held to NumPy in float64, written without JAX: {tests} "
            f"tests on jax {newest}. [The book](docs/strategies.md)",
            f"- **{len(stacks)} stacks**, jax {oldest} to {newest}, on which nothing failed on 2026-11-24 that is not "
            "[expected with a link](docs/expectations.md). [What each changed](docs/compatibility.md)",
        ]
    )


def supported(window: str) -> list[tuple[str, str]]:
    """Of each stack in docs/compatibility.md, oldest first, its JAX and how many tests are proved.

    Raises ``ValueError`` where a test failed on one.
    """
    rows = re.findall(r"^\| (\d[^ |]*) \| [^|]* \| [^|]* \| ([\d,]+) \|.*\| ([\d,]+) \|$", window, re.MULTILINE)
    if not rows or any(failed != "0" for *_, failed in rows):
        raise ValueError(f"{WINDOW} has as stacks, proved and failed tests {rows}; expected some, and none failed")
    return [(jax, proved) for jax, proved, _ in rows]


def page() -> str:
    """One page of the book, whole."""
    return f"```python\n{PAGE.read_text(encoding='utf-8')}```"


def failure() -> str:
    """What `FAILURE` prints of the first clause that fails, as far as it is shown. It takes some seconds."""
    options = [*FAILURE.split()[1:], "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider"]
    run = subprocess.run([sys.executable, "-m", "pytest", *options], capture_output=True, text=True)
    message = re.search(r"^\S+ is violated by .*?^(?:run it )?alone: .*?$", run.stdout, re.MULTILINE | re.DOTALL)
    if message is None:
        raise RuntimeError(f"{FAILURE} shows no violated clause:\n{run.stdout}{run.stderr}")
    lines = message[0].splitlines()
    findings = [line for line in lines if line.startswith("  - ")]
    at = lines.index(findings[0])
    shown = [*lines[:at], *findings[:SHOWN], f"  … {len(findings) - SHOWN} more", *lines[at + len(findings) :]]
    return "\n".join(["```console", f"$ {FAILURE}", *shown, "```"])
