"""A training script under ``meshproof launch``, of which process 1 does before its third step what it is told to."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import jax

from reference_impl.forms.annotated import JaxForm
from reference_impl.lifecycle import multiprocess
from reference_impl.strategies import fsdp
from reference_impl.truth import Momentum


def harm(how: str) -> None:
    """Be killed or stopped by a signal, fall asleep, or raise."""
    match how:
        case "sleep":
            time.sleep(600)
        case "raise":
            raise OSError("the disk is full")
        case _:
            os.kill(os.getpid(), signal.Signals[how])


def main(how: str, pids: str) -> None:
    """Train, and write down which processes there were."""
    multiprocess.join()
    Path(pids, str(jax.process_index())).write_text(str(os.getpid()), encoding="utf-8")
    trainer = JaxForm(fsdp.PAGE, {"data": jax.device_count()}, Momentum())
    shardings = trainer.on_mesh(trainer.batch_specs)
    state = trainer.init(jax.random.key(0))
    for step, batch in enumerate(trainer.batches(5), start=1):
        placed = multiprocess.place(multiprocess.own_rows(batch), shardings)
        if step == 3 and jax.process_index() == 1:
            harm(how)
        multiprocess.mark(step)
        state, metrics = trainer.train_step(state, placed)
        multiprocess.report(f"step {step}: loss {float(metrics['loss']):.6f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
