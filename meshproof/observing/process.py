"""Observes cases in a process of its own: a crash of that process is a result, and the next case gets a new one.

Observations are kept as files in one directory, so that several test processes share them: each case is observed
once in a run, whoever asks first. The protocol is a line each way: a JSON request, a JSON answer when its file is
whole.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from filelock import FileLock
from packaging.version import Version

from meshproof.observing.observation import Observation
from meshproof.observing.seen import Failed, NotExercised

QUICK_CODE = [
    "--xla_backend_optimization_level=0",
    *(["--xla_cpu_use_fusion_emitters=false"] if Version(version("jaxlib")) < Version("0.11") else []),
]
"""XLA flags that only change how its program becomes machine code, in half the time or less: LLVM's level, and on older
versions the older emitters. What communicates, and the bytes of state and batch, are the same to the last; temporary
memory is, but for the emitters' few hundred bytes. ``XLA_FLAGS`` of the environment come after these, and so win."""

MOST_MAPS = 32_000
"""Half the memory maps that Linux allows a process. A program on 8 CPU devices takes dozens to hundreds, and jaxlib
crashes where it gets no more."""

Outcome = Observation | Failed | NotExercised


@dataclass(frozen=True)
class Settings:
    """What an observing process is started with. ``devices`` counts virtual CPU devices.

    Compiled programs are shared within the run: several cases have the same forward pass, gradients or ``init``.
    ``compile_cache`` names a folder that keeps them for the next run too.
    """

    implementation: str
    devices: int
    directory: str
    compile_cache: str | None = None

    def environment(self, target: str) -> dict[str, str]:
        """The environment variables of an observing process; set there, never here."""
        variables = os.environ | {
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "JAX_COMPILATION_CACHE_DIR": self.compile_cache or str(Path(self.directory) / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        if target == "cpu":
            variables["JAX_PLATFORMS"] = "cpu"
            variables["XLA_FLAGS"] = " ".join([*QUICK_CODE, variables.get("XLA_FLAGS", "")]).strip()
        return variables


class Observer:
    """One observing process of one target, started when it is first needed and again after a crash."""

    def __init__(self, settings: Settings, target: str) -> None:
        self.settings, self.target = settings, target
        self.process: subprocess.Popen[str] | None = None
        self.log: Any = None

    def observation(self, case_id: str) -> Outcome:
        """The observation of one case, from its file where somebody has made it already."""
        return cast(Outcome, self.once(case_id, {"case": case_id}))

    def environment(self) -> dict[str, Any] | Failed:
        """Versions, devices and defaults of the stack, as the observing process sees them."""
        return cast("dict[str, Any] | Failed", self.once(f"environment:{self.target}", {"environment": True}))

    def once(self, name: str, request: dict[str, Any]) -> Any:
        """The answer to a request, kept as a file under its name."""
        path = kept(self.settings.directory, name)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                self.ask(request | {"path": str(path)})
            return pickle.loads(path.read_bytes())

    def ask(self, request: dict[str, Any]) -> None:
        """Have the process write the answer's file; where it dies on it, write down of what."""
        if self.process is None:
            self.process = self.start()
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        if not self.process.stdout.readline():
            code = self.process.wait()
            self.process = None
            write_whole(Path(request["path"]), Failed(f"the observing process {self.cause(code)}"))

    def start(self) -> subprocess.Popen[str]:
        """A fresh process."""
        module = ["-X", "faulthandler", "-m", "meshproof.observing.process"]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        return subprocess.Popen(
            [sys.executable, *module, self.settings.implementation, self.target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.settings.environment(self.target),
            text=True,
        )

    def cause(self, code: int) -> str:
        """How the process ended, and the last that it said: the innermost frames, where it died of a signal."""
        self.log.seek(0)
        said = self.log.read()
        _, fatal, stack = said.rpartition("Fatal Python error")
        words = f"{fatal}{stack}".splitlines()[:10] if fatal else said.splitlines()[-10:]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return "\n".join([f"{how}; its last words:", *(words or ["none"])])

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def kept(directory: str, name: str) -> Path:
    """The file of one answer."""
    return Path(directory) / f"{quote(name, safe='')}.pickle"


def write_whole(path: Path, answer: Any) -> None:
    """Write an answer so that its file is never seen half-written."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    temporary.replace(path)


def serve(implementation: str, target: str) -> None:
    """The observing process: answer requests until standard input ends. Strategies print to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from meshproof.cases import load_cases

    cases = {case.id: case for case in load_cases(implementation, (target,))}
    gc.freeze()  # what is loaded stays, and need not be searched for garbage again and again
    gc.set_threshold(100_000)  # nor need what tracing makes, so often: that took a ninth of the time
    for line in sys.stdin:
        request = json.loads(line)
        path = Path(request["path"])
        if "case" in request:
            write_whole(path, _observe(cases[request["case"]]))
            drop_programs()
        else:
            from meshproof.observing.stack import describe

            write_whole(path, describe())
        answers.write("{}\n")
        answers.flush()


def drop_programs(maps: Path = Path("/proc/self/maps"), most: int = MOST_MAPS) -> None:
    """Forget every compiled program where they take more memory maps than ``most``."""
    if maps.exists() and len(maps.read_bytes().splitlines()) > most:
        import jax

        jax.clear_caches()


def _observe(case: Any) -> Outcome:
    import jax

    from meshproof.cases import has_member
    from meshproof.observing.session import observe

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
        return Failed(f"no state could be made: {type(error).__name__}: {error}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
    os._exit(0)  # every answer is whole; to take JAX and its programs down in order takes seconds
