"""Trainers that never answer, each at another place, and some that do. Each is named after where it stands."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cached_property, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tests.implementations.minimal import Trainer
from tests.implementations.truths import Judged, Sound

GRANDCHILD = "MESHPROOF_TEST_GRANDCHILD"
"""Names the file that gets the id of a process which `in_init` starts."""


def is_gone(pid):
    """Whether that process has ended, within a moment."""
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def never():
    """Return."""
    threading.Event().wait()


class Hanging(Trainer):
    """The minimal trainer on two devices, with a compiled step."""

    mesh_axes = {"data": 2}  # noqa: RUF012

    def __init__(self, name):
        self.name = name

    @property
    def mesh(self):
        """Two devices."""
        return jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))

    def init(self, key):
        """One weight, on both devices."""
        return jax.device_put({"w": jnp.zeros(())}, NamedSharding(self.mesh, PartitionSpec()))

    @cached_property
    def train_step(self):
        """Compiled, with its state donated."""
        return jax.jit(self.step, donate_argnums=0)

    def step(self, state, batch):
        """Gradient descent."""
        return super().train_step(state, batch)


class InInit(Hanging):
    """Waits for a process that it started."""

    def init(self, key):
        """It sleeps."""
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10_000)"]) as process:
            if GRANDCHILD in os.environ:
                Path(os.environ[GRANDCHILD]).write_text(str(process.pid), encoding="utf-8")


class InTracing(Hanging):
    """Never ends to be traced."""

    def step(self, state, batch):
        """It waits for what another thread was to say."""
        never()


class InCompilation(Hanging):
    """Never ends to be compiled: XLA folds what is constant, and this takes it 10¹¹ additions."""

    def step(self, state, batch):
        """A sum over windows of a constant."""
        sums = jax.lax.reduce_window(jnp.ones(300_000), 0.0, jax.lax.add, (300_000,), (1,), "SAME")
        state, metrics = super().step(state, batch)
        return state, {"loss": metrics["loss"] + sums[0]}


class InACollective(Hanging):
    """Both devices wait for a sum, of which one waits for the host."""

    def step(self, state, batch):
        """A host callback on the first device."""

        def late(x):
            first = jax.lax.axis_index("data") == 0
            wait = partial(jax.pure_callback, lambda x: never() or x, jax.ShapeDtypeStruct((), x.dtype))
            return jax.lax.psum(jax.lax.cond(first, wait, lambda x: x, x.sum()), "data")

        state, metrics = super().step(state, batch)
        split, whole = PartitionSpec("data"), PartitionSpec()
        total = jax.shard_map(late, mesh=self.mesh, in_specs=split, out_specs=whole, check_vma=False)(batch["x"])
        return state, {"loss": metrics["loss"] + 0 * total}


class InAThreadAtExit(Hanging):
    """Ends its process in a step, while a thread of its own, which Python waits for at exit, loads batches."""

    @property
    def train_step(self):
        """No compiled function."""

        def step(state, batch):
            threading.Thread(target=never, name="loader").start()
            sys.exit(3)

        return step


class Stopped(Hanging):
    """Is stopped, as by a debugger or Ctrl-Z."""

    def init(self, key):
        """By itself. Before its stack is printed it goes on for a moment, and would leave this function."""
        os.kill(os.getpid(), signal.SIGSTOP)
        never()


class InCode(Hanging):
    """Waits in C code that keeps the interpreter's lock: no thread of Python runs any more."""

    def init(self, key):
        """For a signal."""
        ctypes.PyDLL(None).pause()


class Asks(Hanging):
    """Asks the user, as a forgotten breakpoint does."""

    def init(self, key):
        """Go on?"""
        input("continue? ")


class ReadsDonated(Hanging):
    """A host loop that computes with the state that it has donated.

    JAX refuses that in words, but not where a view of it is held on the host: with jaxlib 0.10.2 the process crashes,
    with 0.12.0 the step raises, and no later program of these devices ends.
    """

    @property
    def train_step(self):
        """The compiled step, and how far the weight went."""
        compiled = jax.jit(self.step, donate_argnums=0)

        def step(state, batch):
            before = np.asarray(state["w"])
            new, metrics = compiled(state, batch)
            return new, metrics | {"moved": state["w"] - before}

        return step


class Endless(Sound):
    """A truth that never ends to train."""

    def train(self, parameters, batches):
        """It waits for a file that nobody writes."""
        never()


def strategies():
    """Each of them; what comes after one is to be judged."""
    return [
        InInit("in_init"),
        InTracing("in_tracing"),
        InCompilation("in_compilation"),
        InACollective("in_a_collective"),
        InAThreadAtExit("in_a_thread_at_exit"),
        Stopped("stopped"),
        Judged("in_truth", Endless()),
        ReadsDonated("reads_donated"),
        Hanging("after"),
        Judged("judged_after", Sound()),
        InCode("in_code"),
        Asks("asks"),
    ]
