"""The faults that are planted by hand, for docs/faults.md. Those that operators plant: `tests.saboteurs.operators`."""

from __future__ import annotations

from tests.saboteurs import CAUGHT_BY


def by_hand() -> str:
    """One row for each fault, with its case and the clauses of which each must fail, in Markdown."""
    rows = ["| fault | case | must fail |", "|---|---|---|"]
    for planted, clauses in faults().items():
        name, _, case = planted.partition("-")
        rows.append(f"| {name.replace('_', ' ')} | `{case}` | {', '.join(sorted(clauses))} |")
    return "\n".join(rows)


def faults() -> dict[str, set[str]]:
    """The clauses that must fail, by case, without healthy twins: of those one fails as expected on some stacks."""
    return {case: clauses for case, clauses in CAUGHT_BY.items() if clauses and not case.startswith("healthy_")}
