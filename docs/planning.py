"""Tables of docs/planning.md: chips and links beside what a tutorial says of them, and where sources err."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from meshproof.planning.advice import size
from meshproof.planning.models import models
from meshproof.planning.rooflines import intensity
from meshproof.targets import chips
from meshproof.targets.links import links

PUBLISHED = Path(__file__).parents[1] / "suites" / "published.toml"


def rows(*headings: str, of: Iterable[Iterable[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *of]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def chip_table() -> str:
    """Of one device as JAX counts them."""
    known = [*chips("tpu").values(), *chips("gpu").values()]
    told = (
        (
            f"`{chip.name}`",
            size(chip.memory),
            f"{size(chip.memory_bandwidth)}/s",
            size(chip.described["l2_cache"]) if "l2_cache" in chip.described else "–",
            f"{chip.flops / 1e12:,.0f} TFLOP/s",
            f"{size(chip.link_bandwidth)}/s × {chip.axes}",
            f"{size(chip.network_bandwidth)}/s",
            f"{chip.linked:,}",
            f"{intensity(chip.flops, chip.link_bandwidth):,.0f}",
        )
        for chip in known
    )
    headings = ("chip", "memory", "of it a second", "L2", "bfloat16", "links × axes", "network", "linked", "α = C/W")
    return rows(*headings, of=told)


def link_table() -> str:
    """One way, and what source 001 gives."""
    told = (
        (
            f"`{link.name}`",
            f"{size(link.bandwidth)}/s",
            link.joins,
            f"{size(link.tutorial['figure'])}/s, {link.tutorial['of']}" if link.tutorial else "–",
            link.source,
        )
        for link in links().values()
    )
    return rows("link", "one way", "joins", "the tutorial's figure", "source", of=told)


def model_table() -> str:
    """Those that `--config` takes."""
    told = ((f"`{model.name}`", f"{model.parameters:.4g}", model.source) for model in models().values())
    return rows("model", "parameters", "source", of=told)


def errata() -> str:
    """Figures that their own formula does not give."""
    figures = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))["figure"]
    wrong = [figure for figure in figures if "wrong" in figure]
    return rows("source", "says", "but", of=((each["source"], each["says"], each["wrong"]) for each in wrong))
