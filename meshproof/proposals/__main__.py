"""The process in which a trainer is looked at: it has the devices, and may crash without taking the command with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from meshproof.children import end_when_alone
from meshproof.files import replace_text


def main(request: str, answer: str) -> None:
    """Write what is asked for, as JSON: a compiled proposal, or the shapes of a trainer; or why there is none."""
    from meshproof.proposals.compiling import ExhaustedError, ProposalError, compile_first
    from meshproof.proposals.shapes import shapes_of

    asked: dict[str, Any] = json.loads(Path(request).read_text(encoding="utf-8"))
    try:
        told = compile_first(**asked) if "proposals" in asked else shapes_of(**asked)
    except ProposalError as error:
        told = {"error": str(error), "exhausted": isinstance(error, ExhaustedError)}
    replace_text(Path(answer), json.dumps(told))


if __name__ == "__main__":
    end_when_alone()
    main(*sys.argv[1:])
