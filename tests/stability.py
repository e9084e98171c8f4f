"""``python -m tests.stability 20 -k mlp`` runs the suites 20 times, in 20 random orders, in two processes and in one.

It fails where a verdict, a margin or a ratio of bytes is not the first run's to the last bit, and where ``meshproof
compare`` would tell any other difference between the two reports.

Only compiled programs are kept between the runs. What follows the number of runs goes on to pytest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meshproof.comparison import compare
from meshproof.report.document import read_report

Report = Mapping[str, Any]
Verdicts = dict[str, tuple[str, float | None, float | None]]
"""Of each test its status, its margin, and its ratio of bytes."""


def verdicts(report: Report) -> Verdicts:
    """What a report says of every test."""
    tests = (test for clause in report["clauses"] for test in clause["tests"])
    return {test["id"]: (test["status"], test["margin"], test["ratio"]) for test in tests}


def differences(first: Report, other: Report) -> Iterator[str]:
    """Every test of which two runs say different things, with what they say, and all that a comparison tells."""
    one, two = verdicts(first), verdicts(other)
    for test in sorted(one.keys() | two.keys()):
        if one.get(test) != two.get(test):
            yield f"{test}: {one.get(test, 'no such test')}, then {two.get(test, 'no such test')}"
    comparison = compare(first, other)
    yield from comparison.cannot_tell
    for told in comparison.differences:
        yield f"{told.change}: {told.kind} of {told.case or 'the run'}, {told.place}: {told.old}, then {told.new}"


def run(seed: int, folder: Path, options: list[str]) -> Report:
    """One run in the order that this seed draws: an odd one's in two processes, an even one's in one."""
    report = folder / f"{seed}.json"
    command = [sys.executable, "-m", "pytest", "suites", "-q", f"--randomly-seed={seed}"]
    command += ["-n", "2" if seed % 2 else "0", "--compile-cache", str(folder / "compiled")]
    command += ["--conformance-report", str(report), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if not report.exists():
        raise RuntimeError(f"the suites wrote no report:\n{done.stdout}{done.stderr}")
    return read_report(report)


def main(runs: int, options: list[str]) -> None:
    """Exits with what differs, where anything does."""
    with tempfile.TemporaryDirectory() as folder:
        first = run(1, Path(folder), options)
        for seed in range(2, runs + 1):
            if found := list(differences(first, run(seed, Path(folder), options))):
                sys.exit("\n".join([f"run 1 and run {seed} differ:", *found]))
            print(f"run {seed} says what run 1 says", flush=True)
    print(f"{runs} runs of {len(verdicts(first))} tests: the same verdicts, margins and ratios, and nothing to compare")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
