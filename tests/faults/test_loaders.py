"""A data iterator that reads twice, leaves out, or resumes elsewhere is caught by DAT-1; a sound one is not."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshproof.measures.reading import is_whole, misread, restarted
from meshproof.observing.reading import MOST, observe_reading
from meshproof.observing.seen import Failed, NotSupported
from tests.implementations import loaders, minimal

pytestmark = pytest.mark.newest_stack

LIMIT = 25
"""Seconds in which an observing process must be ready, and then answer."""

SOUND = ("Sound", "EndsWithTheEpoch", "Refuses")
CAUGHT = {
    "Restarted": r"saved by 4 processes after step 1, restored on 4: process 0 at step 2 expected examples \w+ as witho"
    r"ut a restart, saw examples \w+ \(so after 13 of 14 restores\)",
    "OneShard": r"2 processes: process 1 at step 1 reads example \w+, which process 0 at step 1 had read, and 24 of "
    r"the 26 examples are not read: expected every example once",
    "OtherSeed": r"saved by 1 process after step 0, restored on 1: process 0 at step 1 expected examples",
    "TailDropped": r"1 process: process 0 at step 7 reads example \w+, which .* of the 26 examples are not read",
    "TailTwice": r"1 process: process 0 at step \d+ reads example \w+, which .* of the 26 examples are not read",
    "EndsBeforeTheTail": "4 processes: when the iterators end, after 6 steps, 2 of the 26 examples are not read",
    "BufferLost": r"saved by 1 process after step 1, restored on 1: process 0 at step 2 expected examples",
    "LocalOrder": r"saved by 2 processes after step 0, restored on 4: .* set_state must raise",
    "OtherBytes": r"saved by 1 process after step 1, .* saw the same in other bytes",
    "OneEndsEarly": "2 processes: process 1 ends after 3 steps and others go on: expected as many steps of each",
}
"""Of each fault what is said of it. Those below take processes of their own to show."""

APART = {
    "HashedSeed": r"saved by 1 process after step 0, restored in a fresh process on 1: process 0 at step 1 expected",
    "Hangs": rf"(?s)expected what its data iterators read within {LIMIT} s, saw none.*loaders\.py.* in __next__",
}
RUN = ("Sound", "Refuses", "OneShard", "Restarted", *APART)
"""Those that are judged by a run of the suites, as a user starts it."""


def problems_of(name, monkeypatch, implementation=loaders.__name__):
    """What DAT-1 says of a loader, but for what a fresh process shows."""
    monkeypatch.setenv(loaders.CHOSEN, name)
    reading = observe_reading(implementation)
    if isinstance(reading, Failed):
        return [reading.reason]
    assert all(map(is_whole, reading.streams.values())) or name == "OneShard"
    found = [problem for processes, stream in reading.streams.items() for problem in misread(processes, stream)]
    return [*found, *restarted(reading)]


def judged(name, folder):
    """The status and message of DAT-1 in a run of the suites."""
    report = folder / f"{name}.json"
    arguments = ["suites/test_data_is_read_once_and_resumed.py", "--impl", loaders.__name__, "-q", "-p", "no:randomly"]
    arguments += ["--case-timeout", str(LIMIT), "--conformance-report", str(report)]
    variables = os.environ | {loaders.CHOSEN: name}
    subprocess.run([sys.executable, "-m", "pytest", *arguments], capture_output=True, env=variables, timeout=300)
    [clause] = json.loads(report.read_text(encoding="utf-8"))["clauses"]
    [test] = clause["tests"]
    assert clause["id"] == "DAT-1" and test["case"] is None
    return test["status"], test["message"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Loader to the status and message of DAT-1, two runs at a time."""
    folder = tmp_path_factory.mktemp("loaders")
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RUN, pool.map(lambda name: judged(name, folder), RUN), strict=True))


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_loader_passes(name, monkeypatch):
    """Endless or for an epoch, whether another number of processes can continue or not."""
    assert problems_of(name, monkeypatch) == []


@pytest.mark.parametrize("name", CAUGHT)
def test_a_fault_is_told(name, monkeypatch):
    """In a sentence that says which processes, at which step, and what was expected."""
    problems = problems_of(name, monkeypatch)
    assert any(re.search(CAUGHT[name], problem) for problem in problems), problems


def test_every_loader_is_judged():
    """None is left out."""
    assert {*SOUND, *CAUGHT, *APART} == loaders.LOADERS.keys()


@pytest.mark.parametrize("name", [name for name in RUN if name not in SOUND])
def test_dat_1_catches_it(runs, name):
    """In a run of the suites, by name, with what to do next."""
    status, message = runs[name]
    assert status == "failed" and message.startswith("DAT-1 is violated: "), message
    assert re.search((CAUGHT | APART)[name], message), message
    assert f"--impl {loaders.__name__}" in message.splitlines()[-1]


def test_dat_1_passes_what_is_sound(runs):
    """And notes what it rests on."""
    assert runs["Sound"] == ("proved", "")
    status, message = runs["Refuses"]
    assert status == "proved"
    assert "judged without a resume on another number of processes: set_state raises" in message
    assert "what get_state returns changes as the iterator reads on: a save that writes it in the background" in message


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"examples": 0}, "TypeError: examples is 0: expected how many examples the data set has, an int above 0"),
        ({"__next__": lambda self: [1]}, "TypeError: an iterator returned list with rows []: expected a dict of host"),
        ({"ids": lambda self, batch: range(99)}, "expected 26 different examples, saw 99 by step 1"),
        ({"get_state": lambda self: lambda: 0}, "could not be read: "),
        (
            {"set_state": None},
            "saved by 1 process after step 0, restored on 1: expected an iterator that continues, saw",
        ),
    ],
)
def test_what_is_no_iterator_of_data_is_told(change, complaint, monkeypatch):
    """What a member is, and what it should be."""
    monkeypatch.setitem(loaders.LOADERS, "changed", type("Changed", (loaders.Sound,), change))
    assert any(complaint in problem for problem in problems_of("changed", monkeypatch))


def test_a_large_data_set_is_not_judged(monkeypatch):
    """An epoch that is not seen whole proves nothing."""
    large = type("Large", (loaders.Sound,), {"examples": 10**9, "place": lambda self, position: position})
    monkeypatch.setitem(loaders.LOADERS, "large", large)
    monkeypatch.setenv(loaders.CHOSEN, "large")
    for stream in observe_reading(loaders.__name__).streams.values():
        assert len(stream.steps) == MOST and not is_whole(stream)


def test_a_module_without_data_is_not_supported():
    """With the member's name."""
    seen = observe_reading(minimal.__name__)
    assert (
        isinstance(seen, NotSupported) and "the implementation has no data_iterator(process, processes)" in seen.reason
    )


def test_the_book_without_grain_is_not_supported(monkeypatch):
    """With the line that installs it."""
    monkeypatch.setitem(sys.modules, "grain", None)
    monkeypatch.delitem(sys.modules, "reference_impl.lifecycle.data_loading", raising=False)
    seen = observe_reading("reference_impl")
    assert isinstance(seen, NotSupported) and "pip install 'meshproof[data]'" in seen.reason
