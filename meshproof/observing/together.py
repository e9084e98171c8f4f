"""One process of a group that observes cases together: each on the devices of all, its numbers gathered.

    python -m meshproof.observing.together IMPLEMENTATION FOLDER CASE…

Process 0 writes each case's answer, a `Seen` tuple of steps, as the file ``CASE.pickle``.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path
from urllib.parse import quote

import jax
from jax.experimental import multihost_utils

from meshproof.cases import Case, load_cases
from meshproof.contract import Step
from meshproof.files import replace_pickle
from meshproof.launching.marks import mark
from meshproof.launching.peers import find_peers
from meshproof.observing.agreement import join
from meshproof.observing.members import loss_of, state_and_metrics
from meshproof.observing.seen import Failed, Seen
from meshproof.observing.state import host
from meshproof.observing.subject import ALONE, STATE, Subject


def main(implementation: str, folder: Path, *names: str) -> None:
    """Observe each of these cases."""
    number = join(find_peers(os.environ))
    cases = {case.id: case for case in load_cases(implementation)}
    for place, name in enumerate(names):
        mark(folder, number, 100 * (place + 1), f"the start of {name}")
        seen = observe_together(cases[name], folder, number, 100 * (place + 1))
        if number == 0:
            replace_pickle(folder / f"{quote(name, safe='')}.pickle", seen)
    multihost_utils.sync_global_devices("observed")


def observe_together(case: Case, folder: Path, number: int, count: int) -> Seen[tuple[Step, ...]]:
    """The numbers of its first steps; failed where the strategy reads what other processes hold, as all of them see.

    Whatever else is raised ends this process, for the others may be in a collective already.
    """
    steps: list[Step] = []
    try:
        with warnings.catch_warnings(), jax.default_matmul_precision("float32"):
            warnings.simplefilter("ignore")
            subject = Subject(case)
            state = subject.fresh()
            for batch in subject.batches:
                mark(folder, number, count + len(steps) + 1, f"step {len(steps) + 1} of {case.id}")
                state, metrics = state_and_metrics(subject.strategy.train_step(state, batch))
                parts = [host(subject.tree(part, state)) if subject.has(part) else {} for part in STATE]
                steps.append(Step(loss_of(metrics), *parts))
    except (RuntimeError, ValueError) as error:
        if ALONE not in str(error):
            raise
        return Failed(
            f"it reads an array that spans several processes as if one held all of it: {str(error).splitlines()[0]}"
        )
    return tuple(steps)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
    except BaseException as error:
        traceback.print_tb(error.__traceback__)
        print(f"{type(error).__name__}: {str(error)[:400]}", file=sys.stderr, flush=True)  # some hold whole arrays
        os._exit(1)  # at once: JAX would wait at its exit for the others
    os._exit(0)
