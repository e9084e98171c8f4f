"""The table of realisations, for docs/realisations.md."""

from __future__ import annotations

from meshproof.hlo.realised import REALISED, TARGETS, Realised

SENDS = {1: "S(n − 1)/n", 2: "2S(n − 1)/n"}


def table() -> str:
    """One row for each way to write a logical operation, in Markdown."""
    head = f"| operation | written as | a device sends | {' | '.join(TARGETS.values())} |"
    return "\n".join([head, "|---" * (3 + len(TARGETS)) + "|", *map(row, REALISED)])


def row(each: Realised) -> str:
    """The row of one way."""
    cells = (
        " and ".join(
            word for word, targets in (("shardings", each.sharded), ("by hand", each.by_hand)) if target in targets
        )
        for target in TARGETS
    )
    sends = "S, from each source" if each.operation == "collective-permute" else SENDS[each.rounds]
    return f"| {each.operation} | `{each.realized_as}` | {sends} | {' | '.join(cell or '–' for cell in cells)} |"
