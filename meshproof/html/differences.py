"""Differences in groups: what forty cases have in common is shown once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Group:
    """The same change of the same place, in one case or many."""

    change: str
    kind: str
    place: str
    entries: tuple[Mapping[str, Any], ...]

    @property
    def values(self) -> tuple[str, str] | None:
        """Old and new value, if all cases agree on them."""
        found = {(entry["old"], entry["new"]) for entry in self.entries}
        return found.pop() if len(found) == 1 else None


def group_differences(differences: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Differences by change, kind and place, in order of first appearance."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for entry in differences:
        groups.setdefault((entry["change"], entry["kind"], entry["place"]), []).append(entry)
    return [Group(*key, tuple(entries)) for key, entries in groups.items()]
