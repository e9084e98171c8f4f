"""What an implementation's data iterators read, and how they continue from every state that they save."""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from meshproof.contract import Batch, DataIterator
from meshproof.measures.reading import Read, Reading, Resumed, Stream
from meshproof.observing.members import origin
from meshproof.observing.seen import Failed, NotSupported, Seen

PROCESSES = (1, 2, 4)
CARRIED = ((2, 4), (4, 2))
"""The numbers of processes that read, and those before and after a resume."""

MOST = 64
"""Steps that are read at most: where a data set takes more, an implementation hands over a smaller one."""

WINDOW = 4
"""Steps that are read after each restore. Each step is restored, so that an epoch's border is in some window."""

Make = Callable[[int, int], DataIterator]


def observe_reading(implementation: str) -> Seen[Reading]:
    """What 1, 2 and 4 processes read in two epochs, and from every state of theirs."""
    make = find(importlib.import_module(implementation))
    if isinstance(make, NotSupported):
        return make
    streams: dict[int, Stream] = {}
    for processes in PROCESSES:
        try:
            seen = read(make, processes)
        except Exception as error:
            return failed(f"the data of {processes} processes could not be read", error)
        if isinstance(seen, Failed):
            return seen
        streams[processes] = seen
    resumed = [each for processes, stream in streams.items() for each in restored(make, processes, stream)]
    for before, after in CARRIED:
        resumed += carried(make, before, after, streams[before])
    return Reading(streams, tuple(resumed))


def observe_resumption(implementation: str, streams: Mapping[int, Stream]) -> Seen[tuple[Resumed, ...]]:
    """What is read from the first, middle and last state to the end, in a process that has read nothing before."""
    make = find(importlib.import_module(implementation))
    if isinstance(make, NotSupported):
        return make
    return tuple(
        resume(make, processes, stream, step, len(stream.steps), " in a fresh process")
        for processes, stream in streams.items()
        for step in sorted({0, len(stream.steps) // 2, len(stream.steps) - 1})
    )


def find(module: ModuleType) -> Make | NotSupported:
    """The module's ``data_iterator``; one that is made when it is asked for may say what it lacks."""
    try:
        made: Make = module.data_iterator
    except AttributeError as error:
        return NotSupported(
            f"the implementation has no data_iterator(process, processes): {error}; see docs/adapters.md"
        )
    return made


def read(make: Make, processes: int) -> Stream | Failed:
    """What so many processes read, side by side, until two epochs and a step are read, all have ended, or `MOST`."""
    iterators = [make(process, processes) for process in range(processes)]
    first, total = iterators[0], 0
    examples = first.examples
    if not isinstance(examples, int) or examples < 1:
        raise TypeError(f"examples is {examples!r}: expected how many examples the data set has, an int above 0")
    steps: list[tuple[Read, ...]] = []
    states: list[tuple[bytes, ...]] = []
    live = False
    while len(steps) < MOST:
        returned = [iterator.get_state() for iterator in iterators]
        states.append(tuple(map(pickle.dumps, returned)))
        batches = [next(iterator, None) for iterator in iterators]
        live = live or tuple(map(pickle.dumps, returned)) != states[-1]
        over = [process for process, batch in enumerate(batches) if batch is None]
        if over and len(over) < processes:
            return Failed(
                f"{processes} processes: process {over[0]} ends after {len(steps)} steps and others go on: expected "
                f"as many steps of each, or those that go on wait for it in the next collective"
            )
        if over:
            break
        enough = total >= 2 * examples
        steps.append(tuple(noted(first, batch) for batch in batches if batch is not None))
        total += sum(len(each.examples) for each in steps[-1])
        if enough:
            break
    return Stream(examples, hasattr(first, "ids"), tuple(steps), tuple(states), bool(over), live)


def restored(make: Make, processes: int, stream: Stream) -> Iterator[Resumed]:
    """On as many processes, from each state."""
    for step in range(len(stream.states)):
        yield resume(make, processes, stream, step, WINDOW)


def resume(make: Make, processes: int, stream: Stream, step: int, window: int, where: str = "") -> Resumed:
    """What fresh iterators read from the states of these or another number of processes."""
    states = stream.states[step]
    saved_by = len(states)
    try:
        iterators = [make(process, processes) for process in range(processes)]
        for process, iterator in enumerate(iterators):
            iterator.set_state(pickle.loads(states[process % saved_by]))
        steps = tuple(ahead(iterators, min(window, len(stream.steps) - step + stream.ended)))
    except Exception as error:
        return Resumed(saved_by, processes, step, (), failed("an error", error).reason, where)
    return Resumed(saved_by, processes, step, steps, where=where)


def carried(make: Make, before: int, after: int, stream: Stream) -> list[Resumed]:
    """On another number of processes, from each state; none where every such state is refused."""
    found = [resume(make, after, stream, step, WINDOW) for step in range(len(stream.states))]
    return [] if all(each.refused for each in found) else found


def ahead(iterators: list[DataIterator], steps: int) -> Iterator[tuple[Read, ...]]:
    """The next steps, or as many as there are."""
    for _ in range(steps):
        batches = [next(iterator, None) for iterator in iterators]
        if read := tuple(noted(iterators[0], batch) for batch in batches if batch is not None):
            yield read


def noted(iterator: DataIterator, batch: Batch) -> Read:
    """What is kept of a batch. Raises ``TypeError`` where it is no dict of arrays that have rows."""
    arrays = {name: np.asarray(field) for name, field in batch.items()} if isinstance(batch, Mapping) else {}
    rows = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
    if len(rows) != 1:
        raise TypeError(
            f"an iterator returned {type(batch).__name__} with rows {sorted(rows)}: expected a dict of host arrays, "
            f"each with as many rows"
        )
    if hasattr(iterator, "ids"):
        names = tuple(str(name) for name in iterator.ids(batch))
    else:
        names = tuple(digest({name: array[row] for name, array in arrays.items()}) for row in range(rows.pop()))
    return Read(names, digest(arrays))


def digest(arrays: Mapping[str, Any]) -> str:
    """Twelve digits for the names, types, shapes and bytes of arrays."""
    found = hashlib.blake2b(digest_size=6)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


def failed(what: str, error: Exception) -> Failed:
    """What was raised, and where."""
    return Failed(f"{what}: {type(error).__name__}: {error} ({origin(error)})")
