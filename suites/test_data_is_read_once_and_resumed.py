"""Who reads a shard twice trains on less data, and who restarts an iterator on its head: no step fails of it."""

import pytest

from meshproof.measures.reading import is_whole, misread, restarted
from meshproof.observing.seen import NotSupported


@pytest.mark.clause("DAT-1")
def test_data_is_read_once_and_resumed(reading, judge):
    """Data iterators MUST give processes disjoint shards that together are the whole data set, and, when saved at any
    step and restored into fresh ones, continue with the same examples. (Of 1, 2 and 4 processes: every example is read
    once before any is read again. A restored iterator returns the same batches, bit for bit, also in a fresh process.
    If a state of 2 processes can be restored on 4, or of 4 on 2, each step has the same examples.)"""
    problems = [problem for processes, stream in reading.streams.items() for problem in misread(processes, stream)]
    judge.clear([*problems, *restarted(reading)])
    for processes, stream in reading.streams.items():
        if not is_whole(stream):
            judge.see(
                NotSupported(
                    f"{processes} processes had not read the {stream.examples} examples after {len(stream.steps)} "
                    f"steps, the most that are judged: have data_iterator read a smaller data set in the same way"
                )
            )
    notes = []
    if not any(resumed.processes != resumed.saved_by for resumed in reading.resumed):
        notes.append("judged without a resume on another number of processes: set_state raises")
    if any(stream.live for stream in reading.streams.values()):
        notes.append(
            "what get_state returns changes as the iterator reads on: a save that writes it in the background would "
            "write another place; return a copy"
        )
    judge.note("; ".join(notes))
