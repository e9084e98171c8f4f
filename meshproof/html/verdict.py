"""The verdict at the top of a page: one sentence, and its severity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshproof.report.document import count_statuses

SEVERITIES = {"regressed": "bad", "cannot tell": "unsure", "changed": "notable", "same": "good"}
ICONS = {"bad": "✗", "unsure": "?", "notable": "≠", "good": "✓"}


@dataclass(frozen=True)
class Verdict:
    """A word, a sentence, and a ``severity``: one of `ICONS`, which chooses colour and sign."""

    word: str
    sentence: str
    severity: str

    @property
    def icon(self) -> str:
        """The sign that goes with the colour."""
        return ICONS[self.severity]


def judge(report: Mapping[str, Any], comparison: Mapping[str, Any] | None) -> Verdict:
    """The comparison's verdict, or the report's own: good only if nothing was left unjudged."""
    if comparison:
        word = comparison["verdict"]
        return Verdict(word, comparison["sentence"], SEVERITIES.get(word, "unsure"))
    counts = count_statuses(report)
    proved, failed = counts["proved"], counts["failed"]
    rest = [
        f"{count} {status.replace('expected-failure', 'expected to fail').replace('-', ' ')}"
        for status, count in counts.items()
        if count and status not in ("proved", "failed")
    ]
    judged = f"{proved or 'no'} {'clause' if proved == 1 else 'clauses'} proved"
    sentence = ", ".join([judged, f"{failed or 'none'} failed", *rest])
    sentence = sentence[0].upper() + sentence[1:]
    if not report["run"]["finished"]:
        sentence += "; the run did not finish"
    if failed:
        return Verdict("failed", sentence, "bad")
    if not proved or counts["not-exercised"] or not report["run"]["finished"]:
        return Verdict("incomplete", sentence, "unsure")
    return Verdict("proved", sentence, "good")
