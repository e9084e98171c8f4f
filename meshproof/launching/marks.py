"""The steps that the processes of a group mark, each in a file of its own: ``COUNT TEXT``, the count grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from meshproof.files import replace_text

MARKS = "MESHPROOF_MARKS"
"""The environment variable that names the folder."""


@dataclass
class Marks:
    """What the processes of a group have marked, and since when each is behind another without a mark of its own."""

    folder: Path
    texts: dict[int, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    behind_since: dict[int, float] = field(default_factory=dict)

    def read(self, processes: int, now: float) -> None:
        """Look at every file; a process without one has marked nothing. What a script is writing in place is not yet
        a mark; ``unread`` is what a file holds that is none."""
        before = dict(self.counts)
        for number in range(processes):
            path = self.folder / str(number)
            there = path.exists()
            written = path.read_text(encoding="utf-8", errors="replace") if there else "0"
            told, _, text = written.strip().partition(" ")
            self.unread[number] = written if there and not (told.isdecimal() and text) else ""
            if told.isdecimal():
                self.counts[number], self.texts[number] = int(told), text
            elif number not in before:
                self.counts[number], self.texts[number] = 0, ""
            if self.counts[number] != before.get(number):
                self.since[number] = now
        furthest = max(self.counts.values())
        for number, count in self.counts.items():
            if count == furthest or count != before.get(number):
                self.behind_since.pop(number, None)
            if count < furthest:
                self.behind_since.setdefault(number, now)

    def last(self, number: int) -> str:
        """What a process marked last, in words."""
        if self.texts.get(number):
            return f"its last mark is {self.texts[number]}"
        if written := self.unread.get(number):
            return f"its mark {written[:40]!r} is not understood (expected a number and a text, as 3 step 3)"
        return "it marked no step"

    def after(self, number: int) -> str:
        """The same, to go on a sentence with."""
        if self.texts.get(number):
            return f"after {self.texts[number]}"
        return "and left a mark that is not understood" if self.unread.get(number) else "and marked no step"

    def laggards(self, now: float, patience: float) -> list[int]:
        """The processes that are the furthest behind, where that is so for ``patience`` seconds.

        None where no process is ahead of them: all may compile, or save, or mark no step at all.
        """
        least = min(self.counts.values(), default=0)
        last = [number for number in self.behind_since if self.counts[number] == least]
        return last if all(now - self.behind_since[number] > patience for number in last) else []


def mark(folder: Path, number: int, count: int, text: str) -> None:
    """Write what process ``number`` is about to do."""
    replace_text(folder / str(number), f"{count} {text}")
