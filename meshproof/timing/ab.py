"""Two stacks on one machine: a long-lived pytest process in each, whose rounds take turns A B B A.

This is repeated in fresh processes: with the same code, one process may be a fifth faster than another for as long as
it lives, and no number of rounds shows that. A verdict must hold for every pair of processes. Benchmarks that differ in
the first pairs are timed in more.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from meshproof.children import CASE_TIMEOUT, GRACE, TRACEBACK, abort, end, ended, stack, start
from meshproof.environments import Environment
from meshproof.installation import CHECK, import_path
from meshproof.timing.comparison import Comparison, changed_facts, differences
from meshproof.timing.ratios import THRESHOLD, Ratio, compare_pairs, span

CONFIRMED = 3
"""*faster* and *slower* need this many times as many pairs of processes as *same* and *cannot tell*."""

SIDES = ("from", "to")
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:randomly")


class AbError(Exception):
    """A comparison that cannot be made; the message has the last lines of the process."""


@dataclass(frozen=True)
class Paired:
    """One benchmark on both sides: its comparison, and the seconds of each round by pair of processes and side."""

    comparison: Comparison
    rounds: tuple[tuple[list[float], list[float]], ...] = ()


class Side:
    """One process and the socket to it. Both sides share a GPU, so JAX does not preallocate its memory."""

    def __init__(self, name: str, environment: Environment, arguments: Sequence[str], patience: float) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(patience)
        self.name, self.socket, self.patience, self.asked = name, ours, patience, "collect the benchmarks"
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the side
        fixed = ["-p", "meshproof.timing.turns", "--turns", str(theirs.fileno()), *WITHOUT]
        self.process = start(
            [str(environment.python), *TRACEBACK, "-m", *arguments, *fixed],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ | {"PYTHONPATH": import_path()},
        )
        theirs.close()
        self.lines = ours.makefile("rw", encoding="utf-8")

    def send(self, **facts: Any) -> None:
        """Send facts; if the process is gone, the next `receive` raises."""
        try:
            self.lines.write(json.dumps(facts) + "\n")
            self.lines.flush()
        except BrokenPipeError:
            pass

    def receive(self) -> dict[str, Any]:
        """The next event. Raises `AbError` if the process is gone, or silent for longer than its limit."""
        try:
            line = self.lines.readline()
        except TimeoutError as error:
            raise AbError(self.stood()) from error
        except ConnectionError:
            line = ""
        if not line:
            ended(self.process, GRACE)
            end(self.process)
            code = self.process.returncode
            raise AbError(f"the process of --{self.name} ended early, with exit code {code}:\n{self.tail()}")
        return json.loads(line)  # type: ignore[no-any-return]

    def stood(self) -> str:
        """Where a process stands that says nothing; it is ended for that."""
        stopped = abort(self.process)
        ended(self.process, GRACE)
        self.log.seek(0)
        how = f"is stopped by {stopped}" if stopped else f"says nothing for {self.patience:g} s"
        told = f"--{self.name} {how}; it was to {self.asked}. What is only slow needs a larger --case-timeout."
        return "\n".join([told, "It stood here, the innermost call first:", *stack(self.log.read())])

    def tail(self) -> str:
        """The last lines that it printed."""
        self.log.seek(0)
        return "\n".join(self.log.read().splitlines()[-15:])

    def close(self) -> None:
        """End the process if it runs, with all that it started."""
        end(self.process)
        for file in (self.lines, self.socket, self.log):
            file.close()


def paths_of(paths: Sequence[str] | None = None) -> list[str]:
    """The module and the words that time these files or folders: the user's own, or else those of this installation."""
    if paths and any(Path(path.partition("::")[0]).exists() for path in paths):
        return ["pytest", *paths]
    return [*CHECK, *(paths or ["benchmarks/"])]


def run_ab(
    environments: Sequence[Environment],
    arguments: Sequence[str],
    rounds: int,
    sessions: int,
    say: Callable[[str], object] = lambda line: None,
    case_timeout: float = CASE_TIMEOUT,
) -> list[Paired]:
    """Every benchmark that ``python -m`` with these arguments selects, in both environments.

    That is done ``sessions`` times in fresh processes.

    Those that come out faster or slower are timed in more, until they no longer do, or `CONFIRMED` times as many pairs
    of processes confirm it. Raises `AbError`, also where a process says nothing for ``case_timeout`` seconds.
    """
    found: dict[str, list[Paired]] = {}
    chosen: set[str] | None = None
    for i in range(CONFIRMED * sessions):
        if i < sessions:
            say(f"processes {i + 1} of {sessions}")
        else:
            chosen = {name for name, each in found.items() if join(each).comparison.outcome in ("faster", "slower")}
            if not chosen:
                break
            say(f"processes {i + 1} of at most {CONFIRMED * sessions}: {len(chosen)} to confirm")
        for paired in _run_session(environments, arguments, rounds, say, chosen, case_timeout):
            found.setdefault(paired.comparison.name, []).append(paired)
    return [join(each) for each in found.values()]


def join(each: Sequence[Paired]) -> Paired:
    """One result of all sessions: that of a session which could not be timed, if there is one."""
    comparisons = [paired.comparison for paired in each]
    rounds = tuple(times for paired in each for times in paired.rounds)
    ratios = [comparison.ratio for comparison in comparisons if comparison.ratio]
    if len(ratios) < len(comparisons):
        return Paired(next(comparison for comparison in comparisons if not comparison.ratio), rounds)
    ratio = span(ratios)
    old, new = (median(second for times in rounds for second in times[side]) for side in (0, 1))
    verdict = ratio.verdict(THRESHOLD)
    return Paired(replace(comparisons[0], outcome=verdict, ratio=ratio, seconds=(old, new)), rounds)


def _run_session(
    environments: Sequence[Environment],
    arguments: Sequence[str],
    rounds: int,
    say: Callable[[str], object],
    chosen: Collection[str] | None,
    patience: float,
) -> list[Paired]:
    """One pair of processes. ``chosen`` are the benchmarks to time; ``None``: all that both have."""
    with ExitStack() as closing:
        sides: list[Side] = []
        for name, environment in zip(SIDES, environments, strict=True):
            sides.append(Side(name, environment, arguments, patience))
            closing.callback(sides[-1].close)
        collected = [side.receive()["tests"] for side in sides]
        both = [test for test in collected[0] if test in collected[1]]
        if not both:
            counts = " and ".join(str(len(tests)) for tests in collected)
            raise AbError(f"no benchmark to compare: {' '.join(arguments)} selects {counts} on the two sides")
        timed = [test for test in both if chosen is None or test in chosen]
        for side in sides:
            side.send(tests=timed, rounds=rounds)
        found = []
        for i, test in enumerate(timed):
            say(f"{i + 1} of {len(timed)}: {test}")
            for side in sides:
                side.asked = f"time {test}"
            found.append(_take_turns(test, sides, rounds))
    alone = [(set(collected[0]) - set(both), "missing"), (set(collected[1]) - set(both), "new")]
    return [*found, *(Paired(Comparison(test, outcome)) for tests, outcome in alone for test in sorted(tests))]  # type: ignore[arg-type]


def _take_turns(test: str, sides: Sequence[Side], rounds: int) -> Paired:
    """One benchmark: both sides get ready, then A B B A. If one side stops, so does the other."""
    times: tuple[list[float], list[float]] = ([], [])
    events = [side.receive() for side in sides]
    for place in _places(rounds):
        if any(event["event"] == "finished" for event in events):
            break
        sides[place].send(go=True)
        events[place] = sides[place].receive()
        if events[place]["event"] == "round":
            times[place].append(events[place]["seconds"])
    events = [
        side.receive() if event["event"] == "round" and len(seconds) == rounds else event
        for side, event, seconds in zip(sides, events, times, strict=True)
    ]
    whole = all(event["event"] == "timed" for event in events)
    for place, side in enumerate(sides):
        while events[place]["event"] != "finished":
            side.send(go=whole)
            events[place] = side.receive()
    return Paired(_judge(test, events, times), (times,))


def _places(rounds: int) -> Iterator[int]:
    for i in range(rounds):
        yield from (0, 1) if i % 2 == 0 else (1, 0)


def _judge(test: str, ends: Sequence[dict[str, Any]], times: tuple[list[float], list[float]]) -> Comparison:
    broken = [
        f"--{name} {end['outcome']}: {end['reason']}"
        for name, end in zip(SIDES, ends, strict=True)
        if end["outcome"] != "passed"
    ]
    if broken:
        failed = any(end["outcome"] == "failed" for end in ends)
        return Comparison(test, "failed" if failed else "not timed", tuple(broken))
    if not all(times):
        return Comparison(test, "refused", ("only benchmark.pedantic has rounds that can take turns",))
    old, new = (end["info"] for end in ends)
    if not old.get("identity"):
        return Comparison(test, "refused", ("it does not say in `extra_info['identity']` what it times",))
    for part in ("identity", "facts"):
        for name, info in zip(SIDES, (old, new), strict=True):
            if not isinstance(told := info.get(part, {}), dict):
                why = f"extra_info[{part!r}] of --{name} is {told!r}: expected a dict of what it is by name"
                return Comparison(test, "refused", (why,))
    if odd := list(differences(old["identity"], new.get("identity", {}))):
        return Comparison(test, "refused", tuple(f"{line} in its identity" for line in odd))
    changed = changed_facts(old["identity"], old.get("facts", {}), new.get("facts", {}))
    facts = tuple(f"{line} in its facts" for line in changed)
    ratio = compare_pairs(*times)
    return Comparison(test, ratio.verdict(THRESHOLD), facts, ratio, (median(times[0]), median(times[1])))


def as_json(environments: Sequence[Environment], found: Sequence[Paired]) -> dict[str, Any]:
    """JSON data of both stacks and every benchmark, with the seconds of every round."""
    return {
        "stacks": {name: each.packages for name, each in zip(SIDES, environments, strict=True)},
        "benchmarks": [
            {
                "name": each.comparison.name,
                "verdict": each.comparison.outcome,
                "details": each.comparison.details,
                "ratio": _interval(each.comparison.ratio),
                "seconds": [dict(zip(SIDES, times, strict=True)) for times in each.rounds],
            }
            for each in found
        ],
    }


def _interval(ratio: Ratio | None) -> dict[str, float] | None:
    return vars(ratio) if ratio else None
