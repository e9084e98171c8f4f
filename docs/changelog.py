"""The parts of docs/changelog.md: what release notes name as changed, the probe of each line, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from docs.planning import rows
from meshproof.comparison.release_notes import Line, Release, read_notes
from meshproof.observing.defaults import every_probe
from meshproof.observing.defaults.probe import ASKED

MOST = 2
"""Entries of an answer that stand in a cell."""

EXTENT = {
    "notes": "",
    "part of notes": "Only part of its notes was read. ",
    "commits": "Its notes are the titles of its commits, which were read in their place. ",
    "no notes": "It has no notes. ",
    "not read": "**Its notes were not read**: they could not be had. ",
}


def releases() -> str:
    """A section for each release, the newest first, with a row for each line of its notes."""
    return "\n\n".join("\n".join(section(release)) for release in sorted_releases())


def sorted_releases() -> list[Release]:
    """JAX's, then Flax's, each from the newest on."""
    every = read_notes()
    return [release for package in ("jax", "flax") for release in reversed(every) if release.package == package]


def section(release: Release) -> Iterator[str]:
    """One release: how much of its notes has a probe, and the lines."""
    yield from (f"## {release.name}", "", f"{EXTENT[release.read]}{verdict(release)}".strip())
    if release.lines:
        headings = ("what the notes name", "probe", "before", "since")
        yield from ("", rows(*headings, of=(cells(release, line) for line in release.lines)))


def verdict(release: Release) -> str:
    """How many lines have no probe, in words."""
    lacking = sum(line.probe is None for line in release.lines)
    if release.read == "not read" or release.read == "no notes":
        return ""
    if not release.lines:
        return "No changed default or value is named."
    if not lacking:
        return "Every line has a probe."
    return f"**{lacking} of {len(release.lines)} lines {'has' if lacking == 1 else 'have'} no probe.**"


def cells(release: Release, line: Line) -> tuple[str, str, str, str]:
    """A row: the line, and the probe's answers on both sides of it."""
    if line.probe is None:
        return line.says, "none", f"not asked: {line.unprobed}", "–"
    probe = every_probe()[line.probe]
    if line.since is None:
        [answer] = probe.expected(release.version)
        return line.says, f"`{line.probe}`", shown(answer), "the same: not seen to change"
    [before], [after] = probe.expected(version_before(release.package, line.since)), probe.expected(line.since)
    later = "" if line.since == release.version else f", seen from {line.since} on"
    return line.says, f"`{line.probe}`", shown(before), f"{shown(after)}{later}"


def version_before(package: str, version: str) -> str:
    """The release before one."""
    return next(release.before for release in read_notes() if (release.package, release.version) == (package, version))


def shown(answer: Any) -> str:
    """An answer in a cell; of a table how many it has."""
    return f"{len(answer)} answers" if isinstance(answer, dict) and len(answer) > MOST else f"`{answer}`"


def probes() -> str:
    """Every probe: what it answers, and from which release on."""
    named = {line.probe for release in read_notes() for line in release.lines}
    told = (
        (
            f"`{name}`",
            each.about,
            each.package,
            "; ".join(answers(each)),
            "yes" if name in named else "no",
        )
        for name, each in sorted(every_probe().items())
    )
    return rows("probe", "what it answers", "of", "answer", "in the notes", of=told)


def answers(probe: Any) -> Iterator[str]:
    """Each answer of the releases that are listed, and the first of them that gives it."""
    versions = [release.version for release in read_notes() if release.package == probe.package]
    versions = versions or [ASKED[probe.package]]
    seen = [(version, shown(probe.expected(version)[0])) for version in versions]
    yield seen[0][1]
    yield from (f"{now} since {version}" for (_, was), (version, now) in pairwise(seen) if was != now)
