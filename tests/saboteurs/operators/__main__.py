"""``python -m tests.saboteurs.operators`` prints the kill matrix of all mutants, and fails where one survives."""

from __future__ import annotations

import sys

from tests.saboteurs.operators.matrix import judge, table

if __name__ == "__main__":
    found = judge()
    print(table(found))
    survivors = [f"{fate.operator} of {fate.strategy}" for fate in found if not fate.caught_by]
    sys.exit("\n".join(["these survived:", *survivors]) if survivors else 0)
