"""``python -m docs.workers RUN.xml docs/performance.md``: what a run of the suites gains from more workers.

``RUN.xml`` is what ``pytest suites/ -n 0 --no-compile-cache --junitxml RUN.xml`` wrote: the seconds of each test, the
observation that it was the first to ask for included. They are dealt to workers as `ByStrategy` deals them under xdist:
a strategy whole, the one with the most tests first, each to the worker that is free first. What is told is a lower
bound: workers are taken not to slow each other.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from meshproof.files import insert, replace_text

NAME = "workers"
WORKERS = (1, 2, 4, 8, 16)


def scopes(xml: str) -> list[tuple[str, float]]:
    """The strategies of a run with their seconds, as xdist orders them: most tests first."""
    tests, seconds = Counter[str](), Counter[str]()
    for test in ElementTree.fromstring(xml).iter("testcase"):  # noqa: S314 - pytest wrote it, on this machine
        parameters = test.attrib["name"].partition("[")[2]
        scope = parameters.partition("-")[0] if "@" in parameters else test.attrib["classname"]
        tests[scope] += 1
        seconds[scope] += float(test.attrib["time"])
    return [(scope, seconds[scope]) for scope, _ in tests.most_common()]


def deal(seconds: Iterable[float], workers: int) -> float:
    """When the last of ``workers`` is done, in seconds."""
    busy = [0.0] * workers
    for lasts in seconds:
        heapq.heapreplace(busy, busy[0] + lasts)
    return max(busy)


def table(xml: str) -> str:
    """Markdown: a row for each number of workers."""
    found = scopes(xml)
    alone = sum(lasts for _, lasts in found)
    longest, lasts = max(found, key=lambda scope: scope[1])
    lines = ["| workers | seconds | times as fast as one |", "|---|---|---|"]
    for workers in WORKERS:
        until = deal((each for _, each in found), workers)
        lines.append(f"| {workers} | {until:.0f} | {alone / until:.1f} |")
    lines += ["", f"The longest strategy, which stays on one worker, is `{longest}` with {lasts:.0f} s."]
    return "\n".join(lines)


if __name__ == "__main__":
    run, page = map(Path, sys.argv[1:])
    text = page.read_text(encoding="utf-8")
    replace_text(page, insert(text, NAME, table(run.read_text(encoding="utf-8"))))
