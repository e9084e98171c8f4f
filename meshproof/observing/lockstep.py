"""One process of a group that observes cases in lockstep, each with its own eyes: all devices, its own shards.

    python -m meshproof.observing.lockstep IMPLEMENTATION TARGET FOLDER ADDRESS COUNT NUMBER CHECKPOINTS CASE…

Each process writes its own `Outcome` of each case to ``FOLDER``, where the pytest process that started it finds it.
``CHECKPOINTS`` is 1 where what becomes of them is asked for, else 0.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from urllib.parse import quote

import jax

from meshproof.cases import Case, load_cases
from meshproof.files import replace_pickle
from meshproof.launching.marks import MARKS, mark
from meshproof.launching.peers import Peers
from meshproof.observing.__main__ import listen
from meshproof.observing.agreement import agree, join, leave
from meshproof.observing.observation import Outcome
from meshproof.observing.seen import Failed, NotExercised
from meshproof.observing.serving import observed


def main(implementation: str, target: str, folder: Path, peers: Peers, checkpoints: bool, names: Sequence[str]) -> None:
    """Observe each of these cases."""
    number = join(peers)
    cases = {case.id: case for case in load_cases(implementation, (target,))}
    for place, name in enumerate(names, start=1):
        if MARKS in os.environ:
            mark(Path(os.environ[MARKS]), number, place, f"the observation of {name}")
        seen = observed_together(cases[name], list(cases.values()), checkpoints)
        how = f"{type(seen).__name__}: {seen.reason}" if isinstance(seen, (Failed, NotExercised)) else ""
        agree(name, 0, how)
        replace_pickle(folder / f"{quote(name, safe='')}.pickle", seen)
    leave()


def observed_together(case: Case, cases: Sequence[Case], checkpoints: bool) -> Outcome:
    """The observation of a case over all devices of all processes, or why there is none."""
    if case.devices != jax.device_count():
        return NotExercised(
            f"its mesh has {case.devices} devices, the {jax.process_count()} processes have {jax.device_count()}: a "
            f"process without one of them would have nothing to run"
        )
    if case.contract.device_dimension:
        return NotExercised("pmap takes its own devices' examples from each process, and not the global batch")
    return observed(case, cases, checkpoints)


if __name__ == "__main__":
    Thread(target=listen, args=(sys.stdin, SimpleQueue()), daemon=True).start()
    code = 0
    try:
        implementation, target, folder, address, count, number, checkpoints, *names = sys.argv[1:]
        peers = Peers(address, int(count), int(number))
        main(implementation, target, Path(folder), peers, checkpoints == "1", names)
    except BaseException as error:
        traceback.print_tb(error.__traceback__)
        print(f"{type(error).__name__}: {str(error)[:1000]}", file=sys.stderr, flush=True)
        code = 1
    os._exit(code)  # at once: JAX would wait at its exit for the others
