"""Two environments side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Described = Mapping[str, Any] | None
INCIDENTAL = ("time",)
"""Keys of an environment that differ between any two runs."""


@dataclass(frozen=True)
class Fact:
    """One line of an environment, as text; ``None``: unknown, or not installed."""

    name: str
    old: str | None
    new: str | None
    changed: bool


def compare_environments(new: Described, old: Described) -> list[Fact]:
    """Everything but the packages; each default has its own line."""
    return _pair(_flat(new), _flat(old), compared=old is not None)


def compare_packages(new: Described, old: Described) -> list[Fact]:
    """Every distribution of either environment, changed ones first."""
    news, olds = (dict(described["packages"]) if described else {} for described in (new, old))
    return sorted(_pair(news, olds, compared=old is not None), key=lambda fact: (not fact.changed, fact.name.lower()))


def _flat(environment: Described) -> dict[str, str]:
    if environment is None:
        return {}
    facts = {name: value for name, value in environment.items() if name not in ("defaults", "packages", "targets")}
    facts |= {
        f"target {name}": f"{told['device_count']} × {told['device_kind']}"
        for name, told in environment.get("targets", {}).items()
    }
    facts |= {f"default {name}": value for name, value in environment["defaults"].items()}
    return {name: str(value) for name, value in facts.items() if value is not None}


def _pair(new: Mapping[str, str], old: Mapping[str, str], compared: bool) -> list[Fact]:
    return [
        Fact(name, old.get(name), new.get(name), compared and name not in INCIDENTAL and old.get(name) != new.get(name))
        for name in {**new, **old}
    ]
