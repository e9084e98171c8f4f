"""``python -m docs.growth REPORT…``: how a step of 6.7 billion parameters grows with its mesh, for docs/performance.md.

It is the implementation that these reports are of, too, a run for each target:
``pytest suites/ --impl docs.growth --target gpu:h200:8x8 -k "64 and (wire or hidden or fits)" --conformance-report R``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

from meshproof.files import insert, replace_text
from meshproof.report.document import read_report
from meshproof.targets import read_target
from reference_impl.forms.base import Form
from reference_impl.sizes import gpt_7b

PAGE, NAME = Path("docs/performance.md"), "growth"
DEVICES = (8, 64, 256, 1024)
HEAD = (
    "target",
    "mesh",
    "compiled in",
    "arguments + temporary",
    "of the chip",
    "collectives",
    "on the wire",
    "behind a product",
)


def strategies() -> Iterator[Form]:
    """FSDP by annotation, and HSDP on two slices, on each number of devices."""
    for devices in DEVICES:
        annotated, _, in_slices = gpt_7b.strategies(devices)
        yield annotated
        yield in_slices


def table(reports: Sequence[dict[str, Any]]) -> str:
    """A row for each case that was compiled for as many devices as its target has, in Markdown."""
    rows = [row(case) for report in reports for case in report["cases"] if case.get("schedule") and fills(case)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows))


def fills(case: dict[str, Any]) -> bool:
    """Whether its mesh has every device of its target."""
    target = read_target(case["target"])
    assert target.chip
    return prod(case["mesh"].values()) == prod(target.shape) * target.slices * target.chip.devices


def row(case: dict[str, Any]) -> Sequence[str]:
    """Of one case."""
    target = read_target(case["target"])
    assert target.chip
    memory, usual, schedule = case["memory"], case["usual"]["collectives"], case["schedule"]
    mesh = ", ".join(f"{axis}={size}" for axis, size in case["mesh"].items())
    return (
        f"`{target.name}`",
        f"`{case['strategy']}`, {mesh}",
        f"{case['compile_seconds']:.0f} s",
        f"{memory['arguments'] / 1e9:.2f} + {memory['temporary'] / 1e9:.1f} GB",
        f"{memory['peak'] / target.chip.memory:.0%}",
        f"{sum(entry['executions'] for entry in usual):,}",
        f"{sum(entry['wire_bytes'] for entry in usual) / 1e9:.1f} GB",
        f"{schedule['hidden'] / schedule['bytes']:.0%}",
    )


if __name__ == "__main__":
    made = table([read_report(Path(path)) for path in sys.argv[1:]])
    replace_text(PAGE, insert(PAGE.read_text(encoding="utf-8"), NAME, made))
