"""The observing process: what it answers, and whether it can be asked again."""

from __future__ import annotations

import gc
import json
import os
import pickle
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

from meshproof.cases import Case, has_member, load_cases
from meshproof.files import replace_bytes, replace_pickle
from meshproof.observing.brought_truth import BroughtTruths, evaluate
from meshproof.observing.layouts import memories
from meshproof.observing.observation import Outcome
from meshproof.observing.seen import Facet, Failed, NotExercised
from meshproof.observing.session import observe
from meshproof.observing.stack import describe

MOST_MAPS = 32_000
"""Half the memory maps that Linux allows a process. A program on 8 CPU devices takes dozens to hundreds, and jaxlib
crashes where it gets no more."""


class Server:
    """The cases of one target, with JAX's devices started."""

    def __init__(self, implementation: str, target: str) -> None:
        keep_whole_entries()
        self.cases = {case.id: case for case in load_cases(implementation, (target,))}
        self.truths = BroughtTruths()
        jax.devices()  # where that fails or never ends, it does so for every case
        gc.freeze()  # what is loaded stays, and need not be searched for garbage again and again
        gc.set_threshold(100_000)  # nor need what tracing makes, so often: that took a ninth of the time

    def answer(self, line: str) -> str:
        """Write the answer to a request: ``done``, or ``spent`` where the next request must go to another process."""
        request = json.loads(line)
        answer = self.answer_to(request)
        replace_pickle(Path(request["path"]), answer)
        drop_programs()
        return "spent" if request["ask"] == "observation" and is_spent(answer) else "done"

    def answer_to(self, request: dict[str, Any]) -> Any:
        """What is asked for."""
        if request["ask"] == "environment":
            return describe()
        case = self.cases[request["case"]]
        if request["ask"] == "observation":
            return observed(case)
        given = pickle.loads(Path(request["given"]).read_bytes())
        if request["ask"] == "evaluation":
            return evaluate(case, given)
        return self.truths.train(case, given, Path(request["observation"]))


def observed(case: Case) -> Outcome:
    """The observation of a case, or why there is none."""
    if case.target == "native" and jax.default_backend() == "cpu":
        return NotExercised("the host has no accelerator; --target cpu runs on virtual CPU devices")
    if case.devices > jax.device_count():
        return NotExercised(
            f"its mesh needs {case.devices} devices, there are {jax.device_count()} ({jax.default_backend()})"
        )
    shape = dict(case.strategy.mesh.shape) if has_member(case.strategy, "mesh") else case.mesh
    if shape != case.mesh:
        return Failed(f"mesh_axes is {case.mesh}, but mesh has the axes {shape}; make them the same")
    try:
        return observe(case)
    except Exception as error:
        told = f"no state could be made: {type(error).__name__}: {error}"
        has = memories(jax.devices()[0])
        if lacking := sorted(set(case.contract.memory.values()) - set(has)):
            return NotExercised(f"the device has no {', '.join(lacking)} memory, but {', '.join(has)}; {told}")
        return Failed(told)


def is_spent(seen: Any) -> bool:
    """Whether something of the strategy raised, so that later programs may never end.

    Seen on jaxlib 0.12.0 where one had been called with donated arrays: `tests.implementations.hanging.ReadsDonated`.
    """
    return isinstance(seen, Failed) or (isinstance(seen, Facet) and any(map(is_spent, vars(seen).values())))


def drop_programs(maps: Path = Path("/proc/self/maps"), most: int = MOST_MAPS) -> None:
    """Forget every compiled program where they take more memory maps than ``most``."""
    if maps.exists() and len(maps.read_bytes().splitlines()) > most:
        jax.clear_caches()


class WholeFile(type(Path())):  # type: ignore[misc]
    """A path whose file is whole or not there, also for another process that reads it meanwhile."""

    def write_bytes(self, data: bytes) -> None:
        """Under another name first. What a full disk does not take is compiled again another time."""
        with suppress(OSError):
            replace_bytes(Path(self), data)  # this class again would write by this method for ever

    def read_bytes(self) -> bytes:
        """Its time becomes that of its last use, by which a cache is trimmed."""
        with suppress(OSError):
            os.utime(self)
        return super().read_bytes()  # type: ignore[no-any-return]


def keep_whole_entries() -> None:
    """Have JAX write the entries of its compilation cache whole.

    It writes them in place, and never again where there is a file: a process that is killed meanwhile leaves half an
    entry for good. Where this JAX does not name its paths as known, nothing is kept.
    """
    from jax._src import lru_cache

    if hasattr(lru_cache, "pathlib"):
        lru_cache.pathlib = SimpleNamespace(Path=WholeFile, epath_installed=False)
    else:
        jax.config.update("jax_enable_compilation_cache", False)
