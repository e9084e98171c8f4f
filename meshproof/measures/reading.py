"""What the processes of a run read of a data set, and what they read once they are resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

ROWS = "an iterator without ids(batch) is judged by the bytes of its rows: bring ids where rows are equal or padding"


@dataclass(frozen=True)
class Read:
    """One batch of one process: the examples that it holds, in its order, and a digest of all its bytes."""

    examples: tuple[str, ...]
    digest: str


Steps = tuple[tuple[Read, ...], ...]
"""What was read: of each step, of each process."""


@dataclass(frozen=True)
class Stream:
    """What so many processes read. ``states[s][p]`` is the pickled state of process p before step s.

    ``examples`` is how many the data set has. ``named``: the iterator says which a batch holds. ``ended``: the steps
    are all that there are; else reading was stopped. ``live``: a state changes as its iterator reads on.
    """

    examples: int
    named: bool
    steps: Steps
    states: tuple[tuple[bytes, ...], ...]
    ended: bool
    live: bool = False


@dataclass(frozen=True)
class Resumed:
    """What ``processes`` read from the state that ``saved_by`` processes had after a number of steps.

    ``refused`` is what it raised; ``where``, where it was restored, is for messages.
    """

    saved_by: int
    processes: int
    step: int
    steps: Steps
    refused: str = ""
    where: str = ""


@dataclass(frozen=True)
class Reading:
    """The streams of each number of processes, and what was read from their states."""

    streams: Mapping[int, Stream]
    resumed: tuple[Resumed, ...]


def misread(processes: int, stream: Stream) -> Iterator[str]:
    """The first step that reads an example again before all were read, and what is unread at the end.

    A batch may hold the end of an epoch and the start of the next: steps are judged whole.
    """
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    told = f"{processes} process{'es' * (processes > 1)}: "
    hint = "" if stream.named else f"; {ROWS}"
    for number, step in enumerate(stream.steps, 1):
        again = ""
        for process, read in enumerate(step):
            place = f"process {process} at step {number}"
            for example in read.examples:
                counts[example] += 1
                if counts[example] == max(counts.values()) > 1:
                    again = f"{place} reads example {example}, which {places[example]} had read"
                places[example] = place
        if len(counts) > stream.examples:
            yield f"{told}expected {stream.examples} different examples, saw {len(counts)} by step {number}{hint}"
            return
        most = max(counts.values(), default=0)
        if most > 1 and (unread := behind(stream, counts, most - 1)):
            yield (
                f"{told}{again}, and {unread} of the {stream.examples} examples are not read: expected every example "
                f"once before any is read again (shards overlap, or an epoch's tail is dropped or read twice){hint}"
            )
            return
    if stream.ended and (unread := behind(stream, counts, max(counts.values(), default=1))):
        yield (
            f"{told}when the iterators end, after {len(stream.steps)} steps, {unread} of the {stream.examples} "
            f"examples are not read, or not as often as others: expected whole epochs{hint}"
        )


def behind(stream: Stream, counts: Counter[str], times: int) -> int:
    """How many examples of the data set were read less often than that."""
    return stream.examples - sum(count >= times for count in counts.values())


def is_whole(stream: Stream) -> bool:
    """Whether what was read is at least one epoch."""
    read = {example for step in stream.steps for each in step for example in each.examples}
    return stream.ended or len(read) >= stream.examples


def restarted(reading: Reading) -> Iterator[str]:
    """How resumed iterators continue otherwise than those that were not stopped, once for each kind of resume.

    Where one on as many processes does, that is told alone.
    """
    found: dict[tuple[int, int, str], list[list[str]]] = {}
    for resumed in reading.resumed:
        kind = (resumed.saved_by, resumed.processes, resumed.where)
        found.setdefault(kind, []).append(list(otherwise(resumed, reading.streams[resumed.saved_by])))
    told = {kind: [each[0] for each in tried if each] for kind, tried in found.items()}
    same = any(problems for (saved_by, processes, _), problems in told.items() if saved_by == processes)
    for kind, problems in told.items():
        if problems and (kind[0] == kind[1] or not same):
            yield f"{problems[0]} (so after {len(problems)} of {len(found[kind])} restores)"


def otherwise(resumed: Resumed, stream: Stream) -> Iterator[str]:
    """How what was read from a state first differs from what ``stream`` reads there without a restart.

    On as many processes each reads the same batches; on another number a step has the same examples.
    """
    same = resumed.processes == resumed.saved_by
    told = (
        f"saved by {resumed.saved_by} process{'es' * (resumed.saved_by > 1)} after step {resumed.step}, "
        f"restored{resumed.where} on {resumed.processes}"
    )
    if resumed.refused:
        yield f"{told}: expected an iterator that continues, saw {resumed.refused}"
        return
    wanted = stream.steps[resumed.step : resumed.step + len(resumed.steps)]
    for number, (got, expected) in enumerate(zip_longest(resumed.steps, wanted, fillvalue=()), resumed.step + 1):
        if not same and together(got) != together(expected):
            yield (
                f"{told}: at step {number} expected the examples of a run without a restart, saw "
                f"{listed(together(got) - together(expected))} and not {listed(together(expected) - together(got))}; "
                f"set_state must raise where it cannot take the state of another number of processes"
            )
            return
        for process, (saw, want) in enumerate(zip_longest(got, expected, fillvalue=None) if same else ()):
            if saw != want:
                alike = saw and want and saw.examples == want.examples
                yield (
                    f"{told}: process {process} at step {number} expected {described(want)} as without a restart, saw "
                    f"{'the same in other bytes' if alike else described(saw)}"
                )
                return


def together(step: Iterable[Read]) -> Counter[str]:
    """The examples of a global batch."""
    return Counter(example for read in step for example in read.examples)


def described(read: Read | None) -> str:
    """What one process read."""
    return "the end" if read is None else f"examples {listed(read.examples)}"


def listed(examples: Iterable[str]) -> str:
    """The first few examples by name."""
    names = list(examples)
    return ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6) if names else "none"
