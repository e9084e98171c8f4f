"""The fewest path patterns that say which leaf has which layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

T = TypeVar("T")


def fewest(specs: Mapping[str, T], avoid: frozenset[str] = frozenset()) -> dict[str, T]:
    """Patterns to layouts, of which the first that matches a path wins: ``*`` comes last, for what most leaves have.

    Every pattern is the first match of some leaf. A pattern before ``*`` matches leaves of one layout only, so that
    their order says nothing. Found greedily: the widest pattern first, the shortest of those.
    Paths in ``avoid`` are matched by none, so that there is no ``*`` at the end.
    """
    if not specs:
        return {}
    groups: dict[T, list[str]] = {}
    for path, spec in specs.items():
        groups.setdefault(spec, []).append(path)
    chosen = {spec: _chosen(paths, spec, specs, avoid) for spec, paths in groups.items()}
    usual = max(groups, key=lambda spec: (len(chosen[spec]), len(groups[spec])))
    if avoid:
        return {pattern: spec for spec, patterns in chosen.items() for pattern in patterns}
    others = {pattern: spec for spec, patterns in chosen.items() if spec != usual for pattern in patterns}
    return {**others, "*": usual}


def _chosen(paths: list[str], spec: T, specs: Mapping[str, T], avoid: frozenset[str]) -> list[str]:
    """The patterns that match all of these paths, and none of another layout or to be avoided."""
    left, chosen = set(paths), []
    fitting = {}
    for pattern in {each for path in paths for each in _candidates(path)}:
        matched = {path for path in specs if fnmatchcase(path, pattern)}
        if all(specs[path] == spec for path in matched) and not any(fnmatchcase(path, pattern) for path in avoid):
            fitting[pattern] = matched
    while left:
        best = min(
            fitting, key=lambda pattern: (-len(fitting[pattern] & left), pattern.count("*"), len(pattern), pattern)
        )
        chosen.append(best)
        left -= fitting[best]
    return chosen


def _candidates(path: str) -> Iterator[str]:
    """The path itself, and its words with a star for those before, after or between."""
    yield path
    words = path.split("/")
    for at, word in enumerate(words):
        first, last = at == 0, at == len(words) - 1
        yield f"{'' if first else '*/'}{word}{'' if last else '/*'}"
        if last:
            yield f"*{word}"
        stem = word.rstrip("0123456789")
        if stem != word and stem:
            yield f"{'' if first else '*/'}{stem}*" + ("" if last else f"/{words[-1]}")
    for start in range(1, len(words)):
        yield f"*/{'/'.join(words[start:])}"
        yield f"*{'/'.join(words[start:])}"
        yield f"{'/'.join(words[:start])}/*"
