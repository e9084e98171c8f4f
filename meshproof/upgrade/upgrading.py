"""An upgrade, tried: the same suites in both environments, compared."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from meshproof.children import CASE_TIMEOUT
from meshproof.comparison import Change, Comparison, Difference, compare, installed
from meshproof.comparison.output import markdown
from meshproof.environments import Environment
from meshproof.files import replace_text
from meshproof.report.document import ORIGIN
from meshproof.timing.ab import Paired
from meshproof.upgrade.bisecting import STACK
from meshproof.upgrade.checkpoints import SIDES, Answered
from meshproof.upgrade.runs import run_suites

TIMES: dict[str, Change] = {
    **{"same": "same", "slower": "regressed", "failed": "regressed", "faster": "improved", "new": "new"},
    **{"changed": "changed", "cannot tell": "changed", "missing": "gone", "refused": "gone", "not timed": "gone"},
}
"""The change of a fact that a benchmark's verdict means."""

KINDS = ("html", "md", "json")
"""What a verdict is written as."""


def forget_verdict(folder: Path) -> None:
    """Remove the verdict that an earlier upgrade left: it would be taken for that of one that fails, or breaks off."""
    for kind in KINDS:
        (folder / f"upgrade.{kind}").unlink(missing_ok=True)


def run_both(
    environments: Sequence[Environment],
    arguments: Sequence[str],
    folder: Path,
    show: Callable[[str, int], object] = lambda side, percent: None,
    case_timeout: float = CASE_TIMEOUT,
) -> list[dict[str, Any]]:
    """The reports of the old and the new stack, in ``upgrade-from.json`` and ``upgrade-to.json``.

    Raises `meshproof.upgrade.runs.RunError`.
    """
    return [
        run_suites(
            environment,
            arguments,
            folder / f"upgrade-{side}.json",
            partial(show, side),
            case_timeout=case_timeout,
        )
        for side, environment in zip(SIDES, environments, strict=True)
    ]


def judge(
    reports: Sequence[dict[str, Any]], times: Sequence[Paired] = (), exchanged: Answered | None = None
) -> Comparison:
    """The differences between two reports; between times if any were taken; and of checkpoints that were exchanged."""
    comparison = compare(*reports)
    if exchanged:
        comparison = replace(
            comparison,
            differences=(*comparison.differences, *exchanged.differences),
            same=comparison.same + exchanged.same,
            cannot_tell=(*comparison.cannot_tell, *filter(None, [exchanged.cannot_tell])),
            exchanged=exchanged.sentence,
        )
    timed = [_difference(paired) for paired in times]
    differences = [*comparison.differences, *(each for each in timed if each.change != "same")]
    same = comparison.same + sum(each.change == "same" for each in timed)
    return replace(comparison, differences=tuple(sorted(differences, key=lambda each: each.rank)), same=same)


def _difference(paired: Paired) -> Difference:
    comparison = paired.comparison
    verdict = "ambiguous" if comparison.outcome == "cannot tell" else comparison.outcome
    old, new = (f"{seconds:.4g} s" for seconds in comparison.seconds) if comparison.seconds else ("–", "–")
    detail = "; ".join([f"{verdict}: {comparison.ratio or 'no ratio'}", *comparison.details])
    name = comparison.name.rpartition("::")[2]
    failed = [side for side in SIDES if any(f"--{side} failed" in each for each in comparison.details)]
    change = "changed" if failed == [SIDES[0]] else TIMES[comparison.outcome]
    return Difference(change, "time", None, name, old, f"{new}, {verdict}", detail)


def next_step(comparison: Comparison, options: Sequence[str] = (), asked: str = "") -> str | None:
    """The command that finds the release that brought the first regression of a case. Packages that were ``asked`` for
    by a release stay at it.

    ``None`` if there is none, or if a package that differs is no release, such as a local wheel. Of checkpoints that
    two stacks exchange one alone says nothing.
    """
    regressed = (each for each in comparison.differences if each.change == "regressed" and each.kind != "checkpoint")
    first = next((each for each in regressed if each.case), None)
    old, new = installed(comparison.old), installed(comparison.new)
    moved = [name for name in STACK if old[name] != new[name]]
    local = any(ORIGIN in stack[name] for stack in (old, new) for name in moved)
    if first is None or first.case is None or not moved or local:
        return None
    asked_for = {each.partition("==")[0].strip() for each in asked.split(",") if "==" in each}
    named = [name for name in STACK if name in moved or STACK[name] in asked_for]
    good, bad = (",".join(f"{STACK[name]}=={stack[name]}" for name in named) for stack in (old, new))
    words = ["meshproof", "bisect", "--good", good, "--bad", bad, "-k", first.case.partition("@")[0], *options]
    return shlex.join([*words, *(["--clause", first.place] if first.kind == "clause" else [])])


def write_upgrade(
    folder: Path,
    reports: Sequence[dict[str, Any]],
    comparison: Comparison,
    environments: Sequence[Environment],
    advice: str | None,
) -> list[Path]:
    """Write ``upgrade.html``, ``upgrade.md`` and ``upgrade.json``; returns their paths."""
    from meshproof.html import render_page

    found = comparison.as_json() | {
        "environments": {side: list(each.packages) for side, each in zip(SIDES, environments, strict=True)},
        "next": advice,
    }
    told = f"\nTo find the release that brought it: `{advice}`\n" if advice else ""
    texts = {
        "html": render_page(reports[1], reports[0], found),
        "md": markdown(comparison) + told,
        "json": json.dumps(found, indent=1),
    }
    paths = {folder / f"upgrade.{kind}": texts[kind] for kind in KINDS}
    for path, text in paths.items():
        replace_text(path, text)
    return list(paths)
