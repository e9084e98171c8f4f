"""The process in which a trainer is adopted: it has the devices, and may crash without taking the command with it."""

from __future__ import annotations

import sys
from pathlib import Path

from meshproof.adopting.adapter import AdoptError
from meshproof.children import end_when_alone
from meshproof.files import replace_pickle


def main(target: str, answer: str) -> None:
    """Write the `Adoption` of a trainer, or the `AdoptError` that says why there is none."""
    from meshproof.adopting.contracts import adopt
    from meshproof.adopting.members import adapt
    from meshproof.adopting.seeing import see

    try:
        replace_pickle(Path(answer), adopt(see(adapt(target))))
    except AdoptError as error:
        replace_pickle(Path(answer), error)


if __name__ == "__main__":
    end_when_alone()
    main(*sys.argv[1:])
