"""Several processes: each has some of the mesh's devices, all run the same program, and one of them reports.

                        one process                       several
    jax.devices()       its own                           those of all; ``jax.local_devices()`` are its own
    host data → mesh    jax.device_put(batch, sharding)   place(own rows, sharding)
    mesh → host data    np.asarray(array)                 whole(array): each process takes part, and each gets it
    print, write        anybody                           report(): process 0 alone
    the train step      —                                 the same, to the letter

A step is one program that all processes must run in the same order: whoever skips one, or a ``whole``, leaves the
others waiting in a collective. The runtime's heartbeats come from a thread of their own, and go on where training does
not. So each process marks the step that it is about to take, and whoever started them sees which of them lags.

    meshproof launch -n 2 -- python -m reference_impl.lifecycle.multiprocess [STEPS]
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from reference_impl.lifecycle.roll_call import call_the_roll

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Who process 0 is, how many there are, and which of them this is. JAX itself reads the first alone."""

MARKS = "MESHPROOF_MARKS"
"""The folder where each process marks its steps, in a file by its number."""

PATIENCE = 60
"""Seconds in which all processes must have come, and in which the last of them must have gone."""


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Become one of several processes: to be called once, before anything asks for a device.

    Where none of the three variables is set, JAX asks the cluster (Slurm, Open MPI, Kubernetes, a TPU pod). Raises
    ``ValueError`` where they do not say it, and ``RuntimeError`` where there is no cluster, and where a process is
    missing, there twice, or counts otherwise.
    """
    if not any(name in environment for name in (ADDRESS, COUNT, NUMBER)):
        return initialize()
    if missing := [name for name in (ADDRESS, COUNT, NUMBER) if name not in environment]:
        raise ValueError(f"{' and '.join(missing)}: not set, expected all of {ADDRESS}, {COUNT} and {NUMBER}")
    count, number = (whole_number(name, environment[name]) for name in (COUNT, NUMBER))
    if not 0 <= number < count:
        raise ValueError(f"{NUMBER} is {number}, expected one from 0 to {count - 1}, since {COUNT} is {count}")
    call_the_roll(environment[ADDRESS], count, number, PATIENCE)
    initialize(environment[ADDRESS], count, number)


def initialize(*known: Any) -> None:
    """Find the others, on CPU with gloo, in bounded time."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    limits = {"initialization_timeout": PATIENCE, "heartbeat_timeout_seconds": 10, "shutdown_timeout_seconds": 10}
    taken = inspect.signature(jax.distributed.initialize).parameters  # jax 0.7 has no limit of the last kind
    try:
        jax.distributed.initialize(*known, **{name: limits[name] for name in limits if name in taken})  # type: ignore[arg-type]
    except ValueError as error:
        raise RuntimeError(
            f"no coordinator: {error} Set {ADDRESS}, {COUNT} and {NUMBER}, or start this with "
            f"`meshproof launch -n 2 -- COMMAND`"
        ) from error


def whole_number(name: str, text: str) -> int:
    """The number that a variable holds. Raises ``ValueError``."""
    if not text.isdecimal():
        raise ValueError(f"{name} is {text!r}, expected a whole number")
    return int(text)


def own_rows(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """This process's share of the rows of a global batch that every process can draw: what a loader would read.

    Raises ``ValueError`` where the rows do not divide among the processes.
    """
    count, number = jax.process_count(), jax.process_index()
    for name, rows in batch.items():
        if len(rows) % count:
            raise ValueError(f"batch field {name!r} has {len(rows)} rows, which is not divisible by {count} processes")
    return {name: np.array_split(rows, count)[number] for name, rows in batch.items()}


def place(own: Mapping[str, np.ndarray], sharding: Mapping[str, Sharding]) -> dict[str, jax.Array]:
    """The global arrays of which each process brings its own rows. They must be those of its devices."""
    return {name: jax.make_array_from_process_local_data(sharding[name], rows) for name, rows in own.items()}


def whole(array: jax.Array) -> np.ndarray:
    """A global array on the host of every process. All must call it, as they must take a step."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.array(array)
    return np.array(multihost_utils.process_allgather(array, tiled=True))


def mark(step: int, environment: Mapping[str, str] = os.environ) -> None:
    """Say which step this process is about to take: to be called when its data are there, before the step."""
    if folder := environment.get(MARKS):
        own = Path(folder) / str(jax.process_index())
        temporary = own.with_suffix(".tmp")
        temporary.write_text(f"{step} step {step}", encoding="utf-8")
        temporary.replace(own)


def report(text: str) -> None:
    """Print, in process 0 alone."""
    if jax.process_index() == 0:
        print(text, flush=True)


def main(steps: int = 5) -> None:
    """FSDP of the book's perceptron on five batches in turns, over as many processes as were started."""
    from reference_impl.forms.annotated import JaxForm
    from reference_impl.strategies import fsdp
    from reference_impl.truth import Momentum

    join()
    report(f"{jax.process_count()} processes, {jax.device_count()} devices, {jax.local_device_count()} of them here")
    trainer = JaxForm(fsdp.PAGE, {"data": jax.device_count()}, Momentum())
    shardings = trainer.on_mesh(trainer.batch_specs)
    state = trainer.init(jax.random.key(0))
    for step, batch in enumerate(islice(cycle(trainer.batches(5)), steps), start=1):
        placed = place(own_rows(batch), shardings)
        mark(step)
        state, metrics = trainer.train_step(state, placed)
        report(f"step {step}: loss {float(metrics['loss']):.6f}")
    norm = np.linalg.norm(whole(state.parameters["dense_0"]["kernel"]))
    report(f"|dense_0/kernel| = {norm:.6f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
