"""The observing process: what it answers, and whether it can be asked again."""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

from meshproof.cases import Case, has_member, load_cases
from meshproof.files import replace_bytes, replace_pickle
from meshproof.observing.brought_truth import BroughtTruths, evaluate
from meshproof.observing.compile_only import observe_compile_only
from meshproof.observing.compilers import Compiler, default_devices
from meshproof.observing.flags import observe_flags
from meshproof.observing.layouts import memories
from meshproof.observing.members import origin, told
from meshproof.observing.observation import Outcome
from meshproof.observing.reading import observe_reading, observe_resumption
from meshproof.observing.runs import observe_continued, observe_run, observe_second_life
from meshproof.observing.seen import Facet, Failed, NotExercised, Seen
from meshproof.observing.session import observe
from meshproof.observing.stack import describe, devices_of
from meshproof.operations import serving as operations
from meshproof.targets import read_target

MOST_MAPS = 32_000
"""Half the memory maps that Linux allows a process. A program on 8 CPU devices takes dozens to hundreds, and jaxlib
crashes where it gets no more."""


MOST_BYTES = 3 << 30
"""Memory beyond which a process that only compiles is ended before the next case."""


class Server:
    """The cases of one target, with JAX's devices started."""

    def __init__(self, implementation: str, target: str) -> None:
        keep_whole_entries()
        self.implementation, self.target = implementation, read_target(target)
        jax.devices()  # where that fails or never ends, it does so for every case
        self.compiler = Compiler(self.target, kept_programs()) if self.target.compiles_only else None
        if self.compiler:  # JAX would read what it had written, and warn that it cannot
            jax.config.update("jax_enable_compilation_cache", False)
        with default_devices(self.compiler.devices) if self.compiler else nullcontext():  # a module may ask on import
            self.cases = {case.id: case for case in load_cases(implementation, (target,))}
        self.with_flax = "flax.nnx" in sys.modules  # before anything but the trainers imports it, as operations do
        self.truths = BroughtTruths()
        gc.freeze()  # what is loaded stays, and need not be searched for garbage again and again
        gc.set_threshold(100_000)  # nor need what tracing makes, so often: that took a ninth of the time

    def answer(self, line: str) -> str:
        """Write the answer to a request: ``done``, or ``spent`` where the next request must go to another process."""
        request = json.loads(line)
        answer = self.answer_to(request)
        replace_pickle(Path(request["path"]), answer)
        drop_programs()
        ends = is_full() if self.compiler else request["ask"] == "observation" and is_spent(answer)
        return "spent" if ends else "done"

    def answer_to(self, request: dict[str, Any]) -> Any:
        """What is asked for."""
        if request["ask"] == "environment":
            environment = describe(self.with_flax)
            return environment if self.compiler is None else environment | devices_of(self.compiler)
        if request["ask"] == "reading":
            return observe_reading(self.implementation)
        if request["ask"] == "resumption":
            return observe_resumption(self.implementation, pickle.loads(Path(request["given"]).read_bytes()))
        if request["ask"] == "run":
            return observe_run(self.implementation, pickle.loads(Path(request["given"]).read_bytes()))
        if request["ask"] == "second life":
            return observe_second_life(self.implementation, *pickle.loads(Path(request["given"]).read_bytes()))
        if request["ask"] == "continued":
            return observe_continued(self.implementation, *pickle.loads(Path(request["given"]).read_bytes()))
        if "table" in request:
            return operations.observe(request)
        case = self.cases[request["case"]]
        if request["ask"] == "observation":
            if self.compiler:
                return compiled(case, self.compiler)
            return observed(case, [*self.cases.values()], request.get("checkpoints", True))
        given = pickle.loads(Path(request["given"]).read_bytes())
        if request["ask"] == "flags":
            return flags_seen(case, given, self.compiler)
        if request["ask"] == "evaluation":
            return evaluate(case, given)
        return self.truths.train(case, given, Path(request["observation"]))


COMPUTED = (
    "; something is computed there on the target's devices, which are not here, as jax.random.key(0) is under "
    "jax.set_mesh: do it within what is compiled or given to jax.eval_shape, or outside the mesh"
)
"""What a trainer asked for where a program of a compiler alone was to be run."""


def compiled(case: Case, compiler: Compiler) -> Outcome:
    """The observation of a case through a compiler, or why there is none."""
    if case.devices > len(compiler.devices):
        return NotExercised(
            f"its mesh needs {case.devices} devices, {case.target} has {len(compiler.devices)}: name a topology of as "
            f"many, or more"
        )
    try:
        return observe_compile_only(case, compiler)
    except Exception as error:
        asked = COMPUTED if "Executable" in str(error) else ""
        return Failed(f"no abstract state could be made: {told(error)} ({origin(error)}){asked}")


def flags_seen(case: Case, flags: dict[str, str], compiler: Compiler | None) -> Seen[dict[str, str]]:
    """What is wrong with each flag, or why that cannot be told."""
    try:
        return observe_flags(case, flags, compiler)
    except Exception as error:
        return Failed(f"the train step of {case.id} was not compiled: {type(error).__name__}: {error}")


def observed(case: Case, cases: Sequence[Case], checkpoints: bool = True) -> Outcome:
    """The observation of a case, as one of these, or why there is none."""
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
        return observe(case, cases, checkpoints)
    except Exception as error:
        why = f"no state could be made: {told(error)} ({origin(error)})"
        has = memories(jax.devices()[0])
        if lacking := sorted(set(case.contract.memory.values()) - set(has)):
            return NotExercised(f"the device has no {', '.join(lacking)} memory, but {', '.join(has)}; {why}")
        return Failed(why)


def is_spent(seen: Any) -> bool:
    """Whether something of the strategy raised, so that later programs may never end.

    Seen on jaxlib 0.12.0 where one had been called with donated arrays: `tests.implementations.hanging.ReadsDonated`.
    """
    return isinstance(seen, Failed) or (isinstance(seen, Facet) and any(map(is_spent, vars(seen).values())))


def kept_programs() -> Path:
    """The folder of compiled programs, taken from JAX, whose cache cannot be read for devices that are not here."""
    jax.config.update("jax_enable_compilation_cache", False)
    return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])


def is_full(limit: int = MOST_BYTES) -> bool:
    """Whether this process holds more memory than ``limit``: compilers give back little of theirs."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > limit


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
