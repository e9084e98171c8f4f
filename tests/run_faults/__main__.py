"""``python -m tests.run_faults --seed 17 --count 60``, or ``--fault 42`` for one of them."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

WORKERS = 2
"""Processes that judge faults side by side: much of their time is waiting."""


def main() -> int:
    """The number of violations, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.run_faults")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--count", type=int, default=60, help="faults 0 to COUNT - 1")
    parser.add_argument("--fault", type=int, action="append", help="this one alone; repeatable")
    parser.add_argument("--plant", help="a fault of the run or the launcher, of tests/run_faults/planted.py")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="meshproof-") as name:
        # before JAX is imported, and in this process alone
        os.environ |= {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "4",
            "JAX_COMPILATION_CACHE_DIR": f"{name}/compiled",
        }
        os.environ |= {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        from tests.run_faults.disks import Disk

        with Disk(Path(name) / "disk") as disk:  # before anything has threads
            print(f"a full disk is {disk.kind}" + f" ({disk.why})" * bool(disk.why), flush=True)
        from meshproof.observing.process import QUICK_CODE
        from tests.run_faults.judging import Run, begin, judge
        from tests.run_faults.schedule import TOGETHER, draw

        os.environ["XLA_FLAGS"] = " ".join(QUICK_CODE)  # each process but the first compiles its step anew
        if given.plant:
            from tests.run_faults.planted import plant

            plant(given.plant)
        faults = [draw(given.seed, number) for number in given.fault or range(given.count)]
        started, run = time.monotonic(), Run(Path(name))
        if any((fault.kind, fault.point) in TOGETHER for fault in faults):
            _ = run.pair.undisturbed  # once, for all that judge
        judged = []
        with get_context("fork").Pool(min(WORKERS, len(faults)), begin, (run,)) as pool:
            for each in pool.imap(judge, faults):
                judged.append(each)
                print(each, flush=True)
        seconds = time.monotonic() - started
    counts = Counter(each.how for each in judged)
    groups = ("launch", *(point for _, point in TOGETHER))
    slowest = max((each.seconds for each in judged if each.fault.point in groups), default=0.0)
    print(", ".join(f"{count} {how}" for how, count in counts.most_common()))
    print(
        f"{len(judged)} faults in {seconds:.0f} s; at most {max(each.lost for each in judged)} steps to do again; a "
        f"lost process was named within {slowest:.1f} s"
    )
    violations = [each for each in judged if each.violated]
    for each in violations:
        again = f"python -m tests.run_faults --seed {given.seed} --fault {each.fault.number}"
        print(f"VIOLATION: {each}\n  again: {again}", file=sys.stderr)
    return min(len(violations), 1)


if __name__ == "__main__":
    sys.exit(main())
