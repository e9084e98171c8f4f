"""The faults that are planted by hand, for docs/faults.md. Those that operators plant: `tests.saboteurs.operators`."""

from __future__ import annotations

from tests.saboteurs import CAUGHT_BY


def by_hand() -> str:
    """One row for each fault, with the clauses of which each must fail, in Markdown."""
    rows = (
        f"| {fault.partition('-')[0].replace('_', ' ')} | {', '.join(sorted(clauses))} |"
        for fault, clauses in planted().items()
    )
    return "\n".join(["| fault | must fail |", "|---|---|", *rows])


def planted() -> dict[str, set[str]]:
    """The faults by name, without their healthy twins; of those one fails as expected on some stacks."""
    return {name: clauses for name, clauses in CAUGHT_BY.items() if clauses and not name.startswith("healthy_")}
