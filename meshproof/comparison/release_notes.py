"""What release notes of JAX and Flax name as a changed default or value, and which of it explains a difference."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

FILE = Path(__file__).with_suffix(".toml")

Read = Literal["notes", "part of notes", "commits", "no notes", "not read"]


@dataclass(frozen=True)
class Line:
    """A line of release notes, in words of our own. Either ``probe`` asks for it, or ``unprobed`` says why none does.
    The answer is another one from ``since`` on; ``None``: it is not seen to change."""

    says: str
    probe: str | None
    unprobed: str | None
    since: str | None


@dataclass(frozen=True)
class Release:
    """A release of ``package``, the one ``before`` it, and the lines of its notes, as far as they were ``read``."""

    package: str
    version: str
    before: str
    read: Read
    lines: tuple[Line, ...]

    @property
    def name(self) -> str:
        """Package and version."""
        return f"{self.package} {self.version}"


@cache
def read_notes() -> tuple[Release, ...]:
    """Every release, package by package, from the oldest on. Raises ``ValueError`` where an entry cannot be read."""
    told = tomllib.loads(FILE.read_text(encoding="utf-8"))
    before, releases = dict(told["before"]), []
    for release in told["release"]:
        package, version = release["package"], release["version"]
        lines = tuple(read_line(f"{package} {version}", version, line) for line in release["lines"])
        releases.append(Release(package, version, before[package], release["read"], lines))
        before[package] = version
    return tuple(releases)


def read_line(release: str, version: str, line: Mapping[str, Any]) -> Line:
    """One entry of a release. Raises ``ValueError`` if it does not say what it must, and nothing else."""
    known = {"says", "probe", "since", "seen"} if "probe" in line else {"says", "unprobed"}
    if line.keys() - known or "says" not in line or not (line.keys() & {"probe", "unprobed"}):
        raise ValueError(
            f"{FILE.name}, {release}: {dict(line)}: expected says, and either probe (with since or seen) or unprobed"
        )
    since = line.get("since", version) if "probe" in line and line.get("seen", True) else None
    return Line(line["says"], line.get("probe"), line.get("unprobed"), since)


def explain(probe: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Which notes name the change of a probe's answer between two environments; or that none does, and which of those
    between were not read."""
    between = [release for release in read_notes() if lies_between(release.package, release.version, old, new)]
    named = [
        f"release notes of {release.name}: {line.says}"
        for release in read_notes()
        for line in release.lines
        if line.probe == probe and line.since and lies_between(release.package, line.since, old, new)
    ]
    if named:
        return "; ".join(named)
    unread = [release.name for release in between if release.read == "not read"]
    lacking = f", but those of {', '.join(unread)} were not read" if unread else ""
    return f"no release note names it{lacking}"


def lies_between(package: str, version: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a version is newer than one environment's, and not than the other's, whichever is the newer."""
    if old[package] is None or new[package] is None:
        return False
    first, last = sorted(Version(environment[package]) for environment in (old, new))
    return first < Version(version) <= last


def without_probe() -> Iterator[tuple[Release, Line]]:
    """Every line that no probe asks for."""
    return ((release, line) for release in read_notes() for line in release.lines if line.probe is None)
