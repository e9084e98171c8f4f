"""One self-contained HTML page of a plan, with its pictures. Needs no JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshproof.html.templating import templates
from meshproof.planning.printing import (
    BOUGHT,
    MEMORY,
    SHOWN,
    TIMES,
    bought_row,
    memory_row,
    of_device,
    of_pipeline,
    time_row,
)


def render_plan(
    told: Mapping[str, Any], pictures: Sequence[tuple[str, str | None, Sequence[str]]], command: str
) -> str:
    """The page of what `meshproof.planning.document.document` tells.

    ``pictures`` are a question, an ``svg`` element that is inserted unescaped, and remarks; ``command`` made the page.
    """
    ladder = [plan or {"strategy": name} for name, plan in told["ladder"].items()]
    names = [plan["strategy"] for plan in ladder]
    plans = [*ladder, *(plan for plan in told["strategies"][:SHOWN] if plan["strategy"] not in names)]
    tables = [
        ("Memory of a device, by strategy", MEMORY, [list(memory_row(plan)) for plan in plans]),
        ("A step, by strategy", TIMES, [list(time_row(plan)) for plan in plans]),
        ("The best meshes", TIMES, [list(time_row(plan)) for plan in told["meshes"]]),
        ("What more would buy", BOUGHT, [list(bought_row(entry)) for entry in told["doublings"].items()]),
    ]
    return (
        templates()
        .get_template("plan.html")
        .render(
            told=told,
            device=of_device(told["hardware"]),
            pipeline=of_pipeline(told["pipeline"]) if told["pipeline"] else "",
            pictures=pictures,
            command=command,
            tables=[each for each in tables if each[2]],
        )
    )
