"""``python -m docs.pictures``, in a checkout: draws again those of docs/planning.md whose numbers are not today's.

Each SVG carries the numbers that it draws, as those of `meshproof plots` do. Llama 70B with its own batch, as in the
document's first example.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib import rc_context

from meshproof.files import replace_bytes
from meshproof.planning.document import answer
from meshproof.planning.memory import PRECISIONS
from meshproof.planning.models import find_model
from meshproof.planning.search import Question, by_strategy
from meshproof.plots.drawing import STYLE, Picture, numbers, render
from meshproof.plots.plans import draw_chips, draw_ladder, draw_regimes, source
from meshproof.plots.rooflines import draw_roofline
from meshproof.plots.saved_plans import differences
from meshproof.targets import find_chip
from reference_impl import strategies

Pictures = Mapping[str, Callable[[], Picture]]

DESCRIPTION = ".//{http://purl.org/dc/elements/1.1/}description"

FASTEST = 5
"""Strategies of the plan on the roofline: the file is to be small."""


def asked(chip: str, chips: int) -> Question:
    model = find_model("llama-70b")
    return Question(model, find_chip(chip), chips, int(model.batch), PRECISIONS["mixed"])


def roofline() -> Picture:
    """The plan, and the book's transformers: FLOPs of the model over the bytes that a budget must send."""
    question = asked("h100", 64)
    fastest = list(by_strategy(list(answer(question).plans)).values())[:FASTEST]
    below = [source(question), "cases: the book's transformers, FLOPs by the model's formula, bytes by the budget"]
    return draw_roofline(question.chip, question.reached, fastest, [("the book", {"cases": transformers()})], below)


def transformers() -> list[dict[str, Any]]:
    """Cases as a report has them, but by their formulas; pages by hand move what the annotated ones do."""
    return [
        {
            "id": form.name,
            "strategy": form.name,
            "mesh": form.mesh_axes,
            "target": "cpu",
            "flops": form.model_flops.step / prod(form.mesh_axes.values()),
            "collectives": [asdict(line) for line in form.contract.step],
        }
        for form in strategies()
        if form.framework == "jax" and "gpt" in form.model and not form.name.endswith("_shard_map")
    ]


PICTURES: Pictures = {
    "docs/planning-ladder.svg": lambda: draw_ladder(answer(asked("h100", 64))),
    "docs/planning-regimes.svg": lambda: draw_regimes(asked("v5p", 1024)),
    "docs/planning-chips.svg": lambda: draw_chips(asked("h100", 64)),
    "docs/planning-roofline.svg": roofline,
}
"""What draws each, by its file."""


def stale(made: Pictures = PICTURES, root: Path = Path()) -> Iterator[str]:
    """The pictures under ``root`` whose numbers are not those of today, each with the first that differs."""
    for path, make in made.items():
        today = numbers(drawn(make).figure)
        difference = next(differences(carried(root / path), today, path), None)
        if difference:
            yield f"{difference}; `python -m docs.pictures` draws it again"


def write(made: Pictures = PICTURES) -> None:
    """Draw those again that are stale: another matplotlib alone changes no picture."""
    for path, make in made.items():
        if list(stale({path: make})):
            replace_bytes(Path(path), render(drawn(make), "svg"))


def drawn(make: Callable[[], Picture]) -> Picture:
    with rc_context(STYLE):
        return make()


def carried(path: Path) -> Any:
    """The numbers in a picture; ``None`` where there is no picture, or none that carries any."""
    found = ElementTree.parse(path).find(DESCRIPTION) if path.exists() else None  # noqa: S314 - made here
    return None if found is None else json.loads(found.text or "null")


if __name__ == "__main__":
    write()
