"""What a run trained on and lost at each step, and whether the runs that continue it do so with the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LATE = (
    "the place that was saved is behind a batch that was read ahead: save that of the batch which was trained on last"
)
EARLY = (
    "the place that was saved is of an earlier step than the state: write both into one checkpoint, which gets its "
    "name when both are there"
)
APART = (
    "the place and the state that were saved are of two steps: write both into one checkpoint, which gets its name "
    "when both are there"
)
LACKING = "something that a step reads is not in the checkpoint"
ABSENT = "its last checkpoint is not there, or not found: save returns when it is whole, and the latest is taken"
RESTARTED = "the data begin again: save the iterator's place in the checkpoint, and restore it"
TORN = "what is not whole must not have the name of a checkpoint"


@dataclass(frozen=True)
class Trained:
    """One step: a digest of the batch, and the loss, as the bits of a float in hexadecimal."""

    batch: str
    loss: str


@dataclass(frozen=True)
class Continued:
    """What a run of a folder did: the step from which it went on, and its steps.

    ``after``: the last step whose save had returned. ``during``: the step that was being saved, 0 if none, and ``when``
    the process was killed. ``resumed``: the step from which that process itself had gone on. ``ended``: whether the run
    has gone on; ``refused``: what was raised instead.
    """

    after: int
    during: int = 0
    resumed: int = 0
    when: str = ""
    begin: int = 0
    steps: tuple[Trained, ...] = ()
    ended: bool = False
    refused: str = ""

    def __str__(self) -> str:
        before = f"resumed at step {self.resumed}, " if self.resumed else ""
        if self.during:
            return f"{before}killed while step {self.during} was saved, {self.when}"
        return f"{before}stopped after step {self.after}" if self.after else "not stopped, and never saved"


@dataclass(frozen=True)
class Course:
    """The steps of a run that was not stopped, and what came of those that were."""

    steps: tuple[Trained, ...]
    continued: tuple[Continued, ...]


def astray(course: Course, killed: bool) -> Iterator[str]:
    """How runs go on otherwise than the one that was not stopped: one sentence, of the middle one of them, and of runs
    that had not been resumed if there are such. (Of the first, a place one step too early is the head of the data; of
    the last, one too late is behind what is known.)

    ``killed``: of those that were killed in a save, else of the others.
    """
    runs = [run for run in course.continued if bool(run.during) == killed]
    found = [(run, sentence) for run in runs if (sentence := next(otherwise(run, course.steps), ""))]
    told = [sentence for run, sentence in found if not run.resumed] or [sentence for _, sentence in found]
    if told:
        yield f"{told[len(told) // 2]} (so in {len(found)} of {len(runs)} runs)"


def otherwise(run: Continued, expected: tuple[Trained, ...]) -> Iterator[str]:
    """How one run goes on otherwise, the first problem first."""
    allowed = {run.after, run.during or run.after}
    if run.refused:
        yield f"{run}: expected a run that goes on, saw {run.refused}{f'; {TORN}' if run.during else ''}"
    elif run.begin not in allowed:
        named = " or ".join(str(step) for step in sorted(allowed))
        hint = f"; {ABSENT}" if run.begin < run.after and not run.during else ""
        yield f"{run}: expected a run that goes on from step {named}, saw one from step {run.begin}{hint}"
    for number, (saw, wanted) in enumerate(zip(run.steps, expected[run.begin :], strict=False), run.begin + 1):
        if saw.batch != wanted.batch:
            seen = where(saw, number, expected, bool(run.during))
            yield f"{run}: at step {number} expected the examples of an uninterrupted run, saw {seen}"
        if saw.loss != wanted.loss:
            yield (
                f"{run}: at step {number} expected the loss {float.fromhex(wanted.loss):.9g}, bit for bit, saw "
                f"{float.fromhex(saw.loss):.9g} of the same examples: {f'{APART}, or ' if run.during else ''}{LACKING}"
            )


def where(saw: Trained, number: int, expected: tuple[Trained, ...], torn: bool) -> str:
    """Which step has the examples that were seen, and what that hints at; ``torn`` where a save was cut off."""
    places = [place for place, step in enumerate(expected, 1) if step.batch == saw.batch]
    if not places:
        return "others, which no step of it has"
    hint = RESTARTED if places[0] == 1 else APART if torn else LATE if places[0] > number else EARLY
    return f"those of step {places[0]}; {hint}"
