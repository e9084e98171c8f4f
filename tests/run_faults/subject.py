"""A short run in a process of its own, which comes to harm at a named point. Forked, so that nothing is imported anew.

The process that forks must not have asked JAX for a device.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from reference_impl import train
from reference_impl.lifecycle import checkpointing, data_loading  # noqa: F401 - it takes seconds, once
from reference_impl.lifecycle.choosing import choose
from reference_impl.lifecycle.multiprocess import whole
from reference_impl.lifecycle.run_folder import RunFolder
from reference_impl.lifecycle.training_data import Shuffled, fields_for
from tests.run_faults.disks import end_with_parent

STEPS, SAVE_EVERY, KEEP, DEVICES = 6, 2, 2, 4
LIMIT = 120.0
"""Seconds that a run may take, of which it needs one or two."""

FORM = choose("fsdp", "jax", "mlp", {"data": DEVICES}, 32)
DATA = Shuffled(fields_for(FORM.network), FORM.batch_size, 0)
SETTINGS = {"model": "mlp", "batch": 32, "seed": 0}


@dataclass(frozen=True)
class Harm:
    """``act`` is called before step ``step``, or before file operation ``operation`` of save ``save`` or of a
    restore (``save`` is 0 then)."""

    act: Callable[[], None]
    step: int = -1
    save: int = -1
    operation: int = -1


NONE = Harm(lambda: None)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its first and last step, the digest of its last state, the checkpoints that it knew to be whole,
    the file operations of its saves (the first entry is of its restore), and the error that ended it."""

    begin: int = -1
    digest: str = ""
    saved: tuple[int, ...] = ()
    operations: tuple[int, ...] = ()
    error: str = ""
    text: str = ""
    signal: int = 0
    hung: bool = False


class Operations:
    """Counts the file operations that pass through Python, within one save or restore."""

    def __init__(self, folder: Path, harm: Harm) -> None:
        self.folder, self.harm = str(folder), harm
        self.counts, self.counting = [0], False
        sys.addaudithook(self.hear)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """One operation, if it is one, and in the run's folder."""
        if self.counting and event in ("open", "os.mkdir", "os.rename", "os.listdir") and self.folder in str(args[0]):
            at = len(self.counts) - 1, self.counts[-1]
            self.counts[-1] += 1  # before the harm, which may open files itself
            if at == (self.harm.save, self.harm.operation):
                self.harm.act()


@dataclass
class Watched(RunFolder):
    """A run folder whose operations are counted, and whose finished saves are written down: each is waited for, so that
    its operations are its own."""

    operations: Operations = None
    log: Path = None

    def save(self, strategy: Any, state: Any, step: int, data: Any) -> None:
        """Save, and say so."""
        self.operations.counts.append(0)
        self.operations.counting = True
        super().save(strategy, state, step, data)
        self.wait()
        self.operations.counting = False
        with self.log.open("a") as log:
            log.write(f"{step}\n")


class Harmed(train.Run):
    """A run that comes to harm before a step."""

    harm = NONE

    def step(self, state: Any, number: int) -> Any:
        """One step."""
        if number == self.harm.step:
            self.harm.act()
        return super().step(state, number)


def digest(state: Any) -> str:
    """Of the path, dtype, shape and bytes of every leaf; over several processes, in all of them."""
    content = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        content.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        content.update(whole(leaf).tobytes())
    return content.hexdigest()


def train_in(folder: Path, log: Path, harm: Harm, until: int) -> dict[str, Any]:
    """Begin, or continue from the last checkpoint where there is one."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # what Orbax says of damage is said by the error
    operations = Operations(folder, harm)
    resume = bool(RunFolder(folder, KEEP).steps())
    opened = RunFolder.open(folder, KEEP, SETTINGS, resume)
    kept = Watched(opened.path, opened.keep, operations=operations, log=log)
    run = Harmed(FORM, DATA)
    run.harm = harm
    operations.counting = True
    begin, state = kept.restore(FORM, run.feed.data) if resume else (0, FORM.init(jax.random.key(0)))
    operations.counting = False
    silent = Console(file=io.StringIO())
    state, _ = train.train(run, state, begin, until, kept, SAVE_EVERY, silent, train.Stop())
    return {"begin": begin, "digest": digest(state), "operations": operations.counts}


def run(folder: Path, harm: Harm = NONE, until: int = STEPS) -> Outcome:
    """The outcome of a run in a process of its own; a process that is stopped is resumed after a moment."""
    log, answer = folder.with_suffix(".saved"), folder.with_suffix(".json")
    for path in (log, answer):
        path.unlink(missing_ok=True)
    if (pid := os.fork()) == 0:
        end_with_parent()
        tell(answer, lambda: train_in(folder, log, harm, until))
    code, until_ = 0, time.monotonic() + LIMIT
    while True:
        gone, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if gone and os.WIFSTOPPED(status):
            time.sleep(0.2)
            os.kill(pid, signal.SIGCONT)
        elif gone:
            code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            break
        if time.monotonic() > until_:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Outcome(hung=True)
        time.sleep(0.01)
    return read(log, answer, code)


def tell(answer: Path, result: Callable[[], dict[str, Any]]) -> None:
    """Write what a run comes to, or the error that ends it, and end this process: with code 1 for an error."""
    code = 1
    try:
        answer.write_text(json.dumps(result()))
        code = 0
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)
        told = "".join(traceback.format_exception_only(error)).strip()
        answer.write_text(json.dumps({"error": type(error).__mro__[0].__name__, "text": told}))
    finally:
        os._exit(code)


def read(log: Path, answer: Path, code: int) -> Outcome:
    """What a process told that is over."""
    saved = tuple(map(int, log.read_text().split())) if log.exists() else ()
    told = json.loads(answer.read_text()) if answer.exists() and answer.stat().st_size else {}
    told["operations"] = tuple(told.get("operations", ()))
    return Outcome(saved=saved, signal=code, **told)


def send(number: signal.Signals) -> Callable[[], None]:
    """To this process."""
    return lambda: os.kill(os.getpid(), number)


def nap() -> None:
    """A moment that a step does not usually take."""
    time.sleep(0.3)
