"""Observes cases in a process of its own, within a time limit: its crash and its silence are results of one case.

Observations are kept as files in one directory, so that several test processes share them: each case is observed
once in a run, whoever asks first. The protocol is a line each way: a JSON request, a word when the answer's file is
whole.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from filelock import FileLock, Timeout
from packaging.version import Version

from meshproof.children import CASE_TIMEOUT, GRACE, TRACEBACK, abort, end, ended, last_words, lines, stack, start
from meshproof.contract import Batch, Evaluation, Step
from meshproof.files import replace_pickle
from meshproof.measures.continuing import Course
from meshproof.measures.reading import Reading, Resumed, Stream
from meshproof.observing.observation import Outcome
from meshproof.observing.seen import Failed, Seen
from meshproof.targets import HOST
from meshproof.targets.flags import FLAG_VARIABLES

QUICK_CODE = [
    "--xla_backend_optimization_level=0",
    *(["--xla_cpu_use_fusion_emitters=false"] if Version(version("jaxlib")) < Version("0.11") else []),
]
"""XLA flags that only change how its program becomes machine code, in half the time or less: LLVM's level, and on older
versions the older emitters. What communicates, and the bytes of state and batch, are the same to the last; temporary
memory is, but for the emitters' few hundred bytes. ``XLA_FLAGS`` of the environment come after these, and so win."""

COMPILE_ONLY = ["--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"]
"""XLA flags where no device can time kernels. Triton's products take longer to compile, and move the same bytes."""

NO_HARDWARE = {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
}
"""What plugins must be told where no device is: not to look for a driver, nor to ask a cloud about its host. Several
processes may load libtpu."""

NAMES = {"environment": "a description of the stack", "observation": "an observation", "truth": "a truth"}
NAMES |= {"flags": "what compiler flags do", "reading": "what its data iterators read"}
NAMES |= {"resumption": "what its restored data iterators read"}
NAMES |= {"stacked layers": "what became of stacked layers", "operation": "an operation under its layouts"}
NAMES |= {"transforms": "compositions of transforms", "growth": "how a program grows", "keys": "cache keys"}
"""What is asked for, in the words of a message."""


@dataclass(frozen=True)
class Settings:
    """What an observing process is started with. ``devices`` counts virtual CPU devices.

    Compiled programs are shared within the run: several cases have the same forward pass, gradients or ``init``.
    ``compile_cache`` names a folder that keeps them for the next run too. ``case_timeout`` are the seconds that a
    process has to start, and then for each answer. Without ``user_flags``, no compiler flag of the environment is set.
    """

    implementation: str
    devices: int
    directory: str
    compile_cache: str | None = None
    case_timeout: float = CASE_TIMEOUT
    user_flags: bool = True

    @property
    def compiled(self) -> Path:
        """The folder of compiled programs."""
        return Path(self.compile_cache or Path(self.directory) / "compiled")

    def environment(self, target: str) -> dict[str, str]:
        """The environment variables of an observing process; set there, never here."""
        variables = os.environ | {
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "JAX_COMPILATION_CACHE_DIR": str(self.compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        if not self.user_flags:
            variables |= dict.fromkeys(FLAG_VARIABLES, "")
        if target != "native":
            variables["JAX_PLATFORMS"] = "cpu"
            flags = QUICK_CODE if target == "cpu" else COMPILE_ONLY
            variables["XLA_FLAGS"] = " ".join([*flags, variables.get("XLA_FLAGS", "")]).strip()
        else:  # the processes of all workers share an accelerator's memory
            variables.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        return variables if target in HOST else NO_HARDWARE | variables


class Observer:
    """One observing process of one target, started when it is first needed and again after a crash."""

    def __init__(self, settings: Settings, target: str) -> None:
        self.settings, self.target = settings, target
        self.process: subprocess.Popen[bytes] | None = None
        self.answers: Iterator[str] = iter(())
        self.log: Any = None
        self.unable: Failed | None = None

    def observation(self, case_id: str, checkpoints: bool = True) -> Outcome:
        """The observation of one case, from its file where somebody has made it already."""
        return cast(Outcome, self.once(case_id, {"ask": "observation", "case": case_id, "checkpoints": checkpoints}))

    def environment(self) -> dict[str, Any] | Failed:
        """Versions, devices and defaults of the stack, as the observing process sees them."""
        return cast("dict[str, Any] | Failed", self.once(f"environment:{self.target}", {"ask": "environment"}))

    def truth(self, case_id: str, batches: tuple[Batch, ...] | None) -> Seen[Path]:
        """The file of the `ReferenceTrajectory` of a case that was observed, on the batches of then or on others."""
        return cast("Seen[Path]", self.of_case("truth", case_id, batches))

    def evaluation(self, case_id: str, step: Step) -> Seen[Evaluation]:
        """What the truth of a case says of the state after a step, over the evaluation set."""
        return cast("Seen[Evaluation]", self.of_case("evaluation", case_id, step))

    def flag_problems(self, case_id: str, flags: Mapping[str, str]) -> Seen[dict[str, str]]:
        """What is wrong with each compiler flag, by the train step of a case; of a process that has none set."""
        return cast("Seen[dict[str, str]]", self.of_case("flags", case_id, flags))

    def reading(self) -> Seen[Reading]:
        """What the implementation's data iterators read, and what they read from every state of theirs."""
        return cast("Seen[Reading]", self.once("reading", {"ask": "reading"}))

    def resumption(self, streams: Mapping[int, Stream]) -> Seen[tuple[Resumed, ...]]:
        """What the iterators read in this process from some of the states that another one saved."""
        return cast("Seen[tuple[Resumed, ...]]", self.of_case("resumption", "reading", streams))

    def run(self, folder: Path) -> Seen[Course]:
        """What the implementation's own loop trains on, with copies of its checkpoints in ``folder``."""
        return cast("Seen[Course]", self.of_case("run", "run", folder))

    def second_life(self, folder: Path, course: Course) -> Seen[Course]:
        """What the same run leaves where it goes on, and is stopped or killed again: of a process of its own, too."""
        return cast("Seen[Course]", self.of_case("second life", "run", (folder, course)))

    def continued(self, folder: Path, course: Course) -> Seen[Course]:
        """The same with what the runs in these copies do, in this process."""
        return cast("Seen[Course]", self.of_case("continued", "run", (folder, course)))

    def of_case(self, ask: str, case_id: str, given: Any) -> Any:
        """The answer to a request that no other process makes."""
        path, told = (self.kept(f"{what}:{os.getpid()}:{case_id}") for what in (ask, "given"))
        replace_pickle(told, given)
        observation = str(self.kept(case_id))
        self.ask({"ask": ask, "case": case_id, "given": str(told), "observation": observation, "path": str(path)})
        return pickle.loads(path.read_bytes())

    def once(self, name: str, request: dict[str, Any]) -> Any:
        """The answer to a request, kept as a file under its name; where another process makes it, wait for that."""
        path = self.kept(name)
        patience = 2 * self.settings.case_timeout + 4 * GRACE  # the longest that it may take: to start, and to answer
        try:
            with FileLock(f"{path}.lock", timeout=patience):
                if not path.exists():
                    self.ask(request | {"path": str(path)})
                return pickle.loads(path.read_bytes())
        except Timeout:
            return Failed(
                f"expected {NAMES[request['ask']]} from another process of this run within {patience:g} s, saw none: "
                f"it neither answers nor ends; look whether it is stopped"
            )

    def kept(self, name: str) -> Path:
        """The file of one answer."""
        return Path(self.settings.directory) / f"{quote(name, safe='')}.pickle"

    def ask(self, request: dict[str, Any]) -> None:
        """Have the process write the answer's file; where it dies or is silent, write down of what."""
        path, what = Path(request["path"]), NAMES.get(request["ask"], f"an {request['ask']}")
        path.unlink(missing_ok=True)
        if self.process is None and self.unable is None:
            self.start()
            self.unable = self.heard("an observing process that is ready")
        failed = self.unable
        if failed is None:
            assert self.process and self.process.stdin
            with suppress(BrokenPipeError):
                self.process.stdin.write(f"{json.dumps(request)}\n".encode())
            failed = self.heard(what)
        if failed:
            replace_pickle(path, failed)

    def start(self) -> None:
        """A fresh process."""
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        ends_itself_after = str(self.settings.case_timeout + 6 * GRACE)
        arguments = [self.settings.implementation, self.target, ends_itself_after]
        self.process = start(
            [sys.executable, *TRACEBACK, "-m", "meshproof.observing", *arguments],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.settings.environment(self.target),
        )
        self.answers = lines(self.process, self.settings.case_timeout)

    def heard(self, what: str) -> Failed | None:
        """Wait until the process says that it is done; why it never will, where that is so."""
        assert self.process
        process = self.process
        try:
            word = next(self.answers, "")
        except TimeoutError:
            return self.late(what)
        except KeyboardInterrupt:
            self.close()  # otherwise the next request, for the report, would wait behind this one
            raise
        if not word:
            ended(process, GRACE)
            self.close()
            return Failed(f"the observing process {self.cause(process.returncode)}")
        if word == "spent":
            self.close()
        return None

    def late(self, what: str) -> Failed:
        """End the process, and tell where it stood."""
        assert self.process
        stopped = abort(self.process)
        ended(self.process, GRACE)
        self.close()
        self.log.seek(0)
        where = stack(self.log.read())
        saw = f"its process was stopped by {stopped}" if stopped else "saw none"
        told = (
            f"expected {what} within {self.settings.case_timeout:g} s, {saw}; the process was ended, with all that it "
            f"had started. What is only slow needs a larger --case-timeout."
        )
        stood = ["It stood here, the innermost call first:", *where] if where else ["It left no Python stack."]
        return Failed("\n".join([told, *stood]))

    def cause(self, code: int | None) -> str:
        """How the process ended, and the last that it said: the innermost frames, where it died of a signal."""
        self.log.seek(0)
        words = last_words(self.log.read())
        how = f"exited with code {code}" if code is None or code >= 0 else f"was killed by {signal.Signals(-code).name}"
        return "\n".join([f"{how}; its last words:", *(words or ["none"])])

    def close(self) -> None:
        """End the process. Every answer is whole, and to take JAX and its programs down in order takes seconds."""
        if self.process is not None:
            end(self.process)
            for half in self.settings.compiled.glob(f".*.{self.process.pid}.tmp"):
                half.unlink(missing_ok=True)
            self.process = None
