"""What the installed stack does where nobody says: asked once a run, judged by what its version is known to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from meshproof.observing.defaults import draws, exchanges, functions, promises, settings, sharding  # noqa: F401 - they make the probes
from meshproof.observing.defaults.probe import PROBES, CannotAskError, Probe

BROKEN = "Every release that was asked answers so: look for a report upstream before anything trains on this one"

__all__ = ["PROBES", "Probe", "every_probe", "flipped_defaults", "probe_defaults"]


def probe_defaults(with_flax: bool) -> dict[str, Any]:
    """What this stack answers to every probe that can be asked here, as JSON data; ``with_flax``, to those of Flax too:
    for a trainer without it they would only take time."""
    answers = {}
    for name, each in (every_probe() if with_flax else PROBES).items():
        if with_flax or each.package == "jax":
            with suppress(CannotAskError):
                answers[name] = each.ask()
    return answers


def every_probe() -> dict[str, Probe]:
    """Every probe by its name, those of Flax too. Imports Flax."""
    import_module("meshproof.observing.defaults.layers")
    return PROBES


def flipped_defaults(environment: Mapping[str, Any]) -> list[str]:
    """Each default that is not the one that this version is known to have, in words."""
    defaults = environment["defaults"]
    known = every_probe() if defaults.keys() - PROBES else PROBES
    return [flip for name, observed in defaults.items() for flip in told(name, known[name], observed, environment)]


def told(name: str, asked: Probe, observed: Any, environment: Mapping[str, Any]) -> Iterator[str]:
    """What is said of an answer that is not the known one."""
    version = environment[asked.package]
    expected = asked.expected(version)
    if observed in expected or not asked.judges(version):
        return
    if asked.kind == "promise" and expected:
        seen = unlike(expected[0], observed)
        yield f"answer of {name} on {asked.package} {version}: {seen} ({asked.about}). {BROKEN}"
        return
    wanted = repr(expected[0]) if expected else "one that is known"
    yield (
        f"default of {name} on {asked.package} {version}: expected {wanted}, saw {observed!r} ({asked.about}). "
        f"Take back what sets it: an option, an environment variable, a line of the trainer. If nothing does, this "
        f"version changed it: docs/changelog.md has what others do"
    )


def unlike(expected: Any, observed: Any) -> str:
    """What was expected and seen; of a table, the entries that differ."""
    if not isinstance(expected, dict) or not isinstance(observed, dict):
        return f"expected {expected!r}, saw {observed!r}"
    return "; ".join(
        f"{entry}: expected {expected.get(entry)!r}, saw {observed.get(entry)!r}"
        for entry in expected | observed
        if expected.get(entry) != observed.get(entry)
    )
