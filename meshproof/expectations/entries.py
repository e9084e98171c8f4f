"""The entries of a file of expectations. What is not understood is refused, never ignored.

    [[expectation]]
    test = "suites/test_layout_does_not_change.py::*[data_parallel_pmap-*]"
    when = { jax = "<0.8" }
    outcome = "xfail"
    reason = "pmap is not built on shard_map: it returns arrays with a PmapSharding"
    url = "https://docs.jax.dev/en/latest/migrate_pmap.html"

``test`` is matched against the whole node id. ``*`` stands for any characters, ``?`` for one, and everything else for
itself, brackets too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from meshproof.observing.versions import admits
from meshproof.report.document import VERSIONED
from meshproof.targets import HOST, chips

TABLE = "expectation"
TODO = "TODO"
"""The beginning of a reason that is still to be written."""

PLATFORMS = ("cpu", "gpu", "tpu")


class ExpectationError(ValueError):
    """A file of expectations cannot be used; the message names the entry, the key, its value and what is expected."""


@dataclass(frozen=True)
class Expectation:
    """One entry: ``number`` counts from one in its ``file``. ``when`` has specifiers, a platform and a target."""

    file: str
    number: int
    test: str
    outcome: Literal["xfail", "flaky"]
    reason: str
    url: str
    when: dict[str, str]

    def __str__(self) -> str:
        return f"entry {self.number} of {self.file}"

    def speaks_of(self, versions: Mapping[str, Any]) -> bool:
        """Whether these installed versions satisfy ``when``; a package that is not installed does not."""
        return all(
            versions.get(name) is not None and admits(self.when[name], versions[name])
            for name in VERSIONED
            if name in self.when
        )

    def covers(self, test: str, target: str | None, devices: int | None) -> bool:
        """Whether the entry covers a test, on any platform and version. A test without case has neither."""
        if target is None or devices is None:
            return self.matches(test) and self.when.keys() <= set(VERSIONED)
        return (
            self.matches(test)
            and f"{target}:".startswith(f"{self.when.get('target', target)}:")
            and ("devices" not in self.when or admits(self.when["devices"], str(devices)))
        )

    def matches(self, test: str) -> bool:
        """Whether the pattern matches the id of a test."""
        return fnmatchcase(test, self.test.replace("[", "[[]"))

    def runs_on(self, platform: str | None) -> bool:
        """Whether the entry holds on this platform (JAX's backend)."""
        return self.when.get("platform", platform) == platform


def read(path: Path, name: str) -> list[Expectation]:
    """The entries of a file, which messages call ``name``. Raises `ExpectationError`."""
    return parse(text_of(path, name), name)


def text_of(path: Path, name: str) -> str:
    """The text of a file of expectations. Raises `ExpectationError`."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ExpectationError(f"{name}: cannot be read: {error.strerror}; expected a file of expectations") from error
    except UnicodeDecodeError as error:
        raise ExpectationError(f"{name}: this is not UTF-8 text ({error.reason}); expected TOML") from error


def parse(text: str, file: str) -> list[Expectation]:
    """The entries of a text, which messages call ``file``. Raises `ExpectationError`."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExpectationError(f"{file}: this is not TOML: {error}") from error
    for key, tables in document.items():
        if key != TABLE:
            raise ExpectationError(f"{file}: {key!r} is no key; expected [[{TABLE}]] tables only")
        if not tables or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ExpectationError(f"{file}: {TABLE} is {tables!r}; expected [[{TABLE}]] tables, or none")
    tables = document.get(TABLE, [])
    return [_entry(table, file, number) for number, table in enumerate(tables, 1)]


def _entry(table: dict[str, Any], file: str, number: int) -> Expectation:
    where = f"{file}: entry {number}"
    table = {"when": {}} | table
    _check(where, table, KEYS)
    for key in KEYS:
        if key not in table:
            raise ExpectationError(f"{where}: {key} is missing; expected {KEYS[key][1]}")
    _check(f"{where}: when", table["when"], CONDITIONS)
    when = {key: f"=={value}" if isinstance(value, int) else value for key, value in table["when"].items()}
    return Expectation(file, number, **table | {"when": when})


Rule = tuple[Callable[[Any], bool], str]
"""A predicate of a value, and what it expects, in words."""


def _check(where: str, table: dict[str, Any], rules: Mapping[str, Rule]) -> None:
    for key, value in table.items():
        if key not in rules:
            raise ExpectationError(f"{where}: {key!r} is no key; expected {', '.join(rules)}")
        admitted, expected = rules[key]
        if not admitted(value):
            raise ExpectationError(f"{where}: {key} is {value!r}; expected {expected}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_reason(value: Any) -> bool:
    return _is_text(value) and not value.startswith(TODO)


def _is_link(value: Any) -> bool:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and len(value.split()) == 1


def _is_specifier(value: Any) -> bool:
    try:
        return _is_text(value) and bool(SpecifierSet(value))
    except InvalidSpecifier:
        return False


def _is_count(value: Any) -> bool:
    return _is_specifier(value) or (type(value) is int and value > 0)


def _is_target(value: Any) -> bool:
    kind, _, rest = str(value).partition(":")
    return value in HOST or (kind in ("gpu", "tpu") and rest.partition(":")[0] in {"", *chips(kind)})


KEYS: dict[str, Rule] = {
    "test": (_is_text, "a pattern of test ids, as in suites/test_x.py::*[fsdp-jax-*]"),
    "when": (lambda value: isinstance(value, dict), "a table of conditions; without it the entry always holds"),
    "outcome": (lambda value: value in ("xfail", "flaky"), "xfail or flaky"),
    "reason": (_is_reason, f"what fails and why, in words; {TODO} is for you to fill in"),
    "url": (_is_link, "an http(s) link to the issue or the document that says so"),
}
CONDITIONS: dict[str, Rule] = {
    **dict.fromkeys(VERSIONED, (_is_specifier, "versions, as in '<0.8' or '>=0.10,<0.12'")),
    "platform": (lambda value: value in PLATFORMS, f"{', '.join(PLATFORMS)}: JAX's backend"),
    "target": (_is_target, "cpu, native, or the beginning of another target, as in gpu:h200 for all its topologies"),
    "devices": (_is_count, "how many the case's mesh needs: a number, or a comparison as in '>=8'"),
}
