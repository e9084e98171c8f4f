"""The kill matrix: which clauses caught which operator on which strategy, and what a simpler test would have seen.

The simpler tests are those that trainers have today: is the loss after the last step within 10 % of the healthy one's,
or within 1e-5, and does the compiled step have as many collectives of each kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meshproof.cases import case_id
from meshproof.files import replace_text
from tests.saboteurs.operators import OPERATORS, mutants

KEPT = Path(__file__).with_name("kill_matrix.json")
"""The fates of all mutants when they were last judged, one a line, and the stack that judged them."""

HEAD = (
    "| fault | cases | caught | loss ±10 % | loss ±1e-5 | counted collectives | by clauses |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, order=True)
class Fate:
    """What became of one mutant: ``strategy`` is the id of the healthy case.

    One that ``trained`` took its steps: it was not caught merely because it broke down.
    """

    operator: str
    strategy: str
    caught_by: tuple[str, ...]
    trained: bool
    seen_by_loss_10_percent: bool
    seen_by_loss_1e_5: bool
    seen_by_counts: bool


def judge(*options: str) -> list[Fate]:
    """The fates of the mutants that these options of pytest choose, by one run of the suites."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        suites = ["suites", "--impl", "tests.saboteurs.operators", "-n", "2", "-q", "--tb=no"]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *suites, "--conformance-report", str(report), *options],
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise RuntimeError(f"the suites wrote no report:\n{run.stdout}{run.stderr}")
        return list(fates(json.loads(report.read_text())))


def fates(report: Mapping[str, Any]) -> Iterator[Fate]:
    """The fates of all mutants that a report is about.

    Raises ``ValueError`` where a healthy strategy failed, or is not in the report though its mutant is.
    """
    cases = {case["id"]: case for case in report["cases"]}
    caught: dict[str, set[str]] = defaultdict(set)
    for clause in report["clauses"]:
        for test in clause["tests"]:
            if test["status"] == "failed":
                caught[test["case"]].add(clause["id"])
    for healthy, name, harmed in ((case_id(base), name, case_id(form)) for base, name, form in mutants()):
        if harmed in cases:
            if healthy not in cases:
                raise ValueError(f"{harmed} was chosen without {healthy}: choose strategies, and not their faults")
            if caught[healthy]:
                raise ValueError(f"{healthy} has no fault, but fails {sorted(caught[healthy])}: a false alarm")
            one, other = cases[healthy], cases[harmed]
            yield Fate(
                name,
                healthy,
                tuple(sorted(caught[harmed])),
                bool(other["losses"]),
                differ(one["losses"], other["losses"], 0.1),
                differ(one["losses"], other["losses"], 1e-5),
                counts(one) != counts(other),
            )


def differ(healthy: list[float], harmed: list[float | None], tolerance: float) -> bool:
    """Whether the last losses are further apart than that share of the healthy one, or one is missing or not finite."""
    last = harmed[-1] if len(harmed) == len(healthy) else None
    return last is None or abs(last - healthy[-1]) > tolerance * abs(healthy[-1])


def counts(case: Mapping[str, Any]) -> Counter[str]:
    """The collectives of the compiled step by kind."""
    kinds: Counter[str] = Counter()
    for collective in case["collectives"] or ():
        kinds[collective["operation"]] += collective["tensors"]
    return kinds


def table(found: list[Fate]) -> str:
    """One row for each operator, in Markdown: how many cases have the fault, and in how many each test saw it."""
    rows = [HEAD]
    for name in OPERATORS:
        real = [fate for fate in found if fate.operator == name]
        seen = (
            sum(bool(fate.caught_by) for fate in real),
            sum(fate.seen_by_loss_10_percent for fate in real),
            sum(fate.seen_by_loss_1e_5 for fate in real),
            sum(fate.seen_by_counts for fate in real),
        )
        clauses = sorted({clause for fate in real for clause in fate.caught_by})
        cells = [name.replace("_", " "), str(len(real)), *map(str, seen), ", ".join(clauses)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def keep(found: list[Fate], stack: Mapping[str, str | None]) -> None:
    """Write the fates of all mutants down."""
    rows = ",\n".join(f"  {json.dumps(asdict(fate))}" for fate in sorted(found))
    replace_text(KEPT, f'{{"stack": {json.dumps(stack)}, "fates": [\n{rows}\n]}}\n')


def kept() -> list[Fate]:
    """The fates that were written down."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["fates"]
    return [Fate(**row | {"caught_by": tuple(row["caught_by"])}) for row in rows]
