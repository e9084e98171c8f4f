"""``python -m tests.saboteurs.operators`` judges all mutants, and fails where one survives.

It writes their fates down, and what documents say of them. With options of pytest, as in ``-k fsdp``, it
judges those that they choose, and prints their matrix only.
"""

from __future__ import annotations

import sys

from docs.generated import MADE, write
from meshproof.observing.stack import versions
from tests.saboteurs.operators.matrix import judge, keep, table

if __name__ == "__main__":
    found = judge(*sys.argv[1:])
    print(table(found))
    survivors = [f"{fate.operator} of {fate.strategy}" for fate in found if not fate.caught_by]
    if survivors:
        sys.exit("\n".join(["these survived:", *survivors]))
    if not sys.argv[1:]:
        keep(found, versions())
        write(MADE)
