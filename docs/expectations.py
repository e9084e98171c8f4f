"""What is known to fail in the book, for docs/expectations.md."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from meshproof.expectations.entries import read

FILE = Path("suites/expectations.toml")


def table() -> str:
    """One row for each reason on one range of versions, in Markdown."""
    suites = defaultdict(list)
    for entry in read(FILE, str(FILE)):
        suite, _, chosen = entry.test.partition("::")
        when = ", ".join(f"{name} {wanted}" for name, wanted in entry.when.items())
        suites[when, chosen.partition("[")[2].rstrip("]") or "*", entry.reason, entry.url].append(suite)
    rows = (
        f"| {when} | `{cases}` | {', '.join(f'`{Path(suite).stem}`' for suite in found)} | [{reason}]({url}) |"
        for (when, cases, reason, url), found in suites.items()
    )
    return "\n".join(["| where | cases | tests | why |", "|---|---|---|---|", *rows])
