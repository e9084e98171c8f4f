"""GPT-2's steps compiled for an H200 that is only described: ``python -m benchmarks.compile_only [FILE…]``.

No GPU is needed, but ``jax-cuda13-plugin`` of JAX's release is. It prints the model's FLOPs, the step's memory, and the
bytes that its operations read and write; only a GPU can show how fast its kernels are. cuDNN is assumed to be present,
and no kernel is tuned. With a file, the table is written between its two markers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax
from jax._src.cudnn import fused_attention_stablehlo

from meshproof.cases import load_cases
from meshproof.files import insert, replace_text
from meshproof.hlo.parser import parse
from meshproof.measures.memory import program_memory
from meshproof.observing.compilers import described
from meshproof.targets import chips, read_target
from reference_impl.models import attention
from reference_impl.modifiers.rematerialisation import Rematerialised

from .peaks import PEAKS
from .record import stack
from .sizes import SIZES

NAME = "compile-only"
TARGET = read_target("gpu:h200:1")
CHIP = chips("gpu")["h200"]

HOPPER = SimpleNamespace(platform="gpu", device_kind=CHIP.kind)

STEPS = (("gpt2-124m", False), ("gpt2-xl-1.5b", False), ("gpt2-xl-1.5b", True))
"""A size, and whether its blocks are recomputed."""

HEAD = (
    "| | model FLOPs, at peak | arguments + temporary | moved, at full bandwidth | compiled in |\n|---|---|---|---|---|"
)
STANDS_FOR_ANOTHER = ("parameter", "constant", "get-tuple-element", "tuple", "bitcast")
"""Opcodes that move no bytes."""


@contextmanager
def cudnn() -> Iterator[None]:
    """A context in which lowering finds a Hopper GPU and cuDNN."""
    rule = attention.fits_cudnn
    with (
        patch.object(attention, "fits_cudnn", lambda q_BxTxHxK, device: rule(q_BxTxHxK, HOPPER)),
        patch.object(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000),
    ):
        yield


def moved_bytes(text: str) -> int:
    """Bytes that the operations of a program's entry computation read and write: all operands and results."""
    moving = [each for each in parse(text).entry.instructions if each.opcode not in STANDS_FOR_ANOTHER]
    arrays = [array for each in moving for array in (each, *each.operands)]
    return sum(shape.bytes for array in arrays for shape in array.shapes)


def compile_step(size: str, rematerialised: bool, devices: list[Any]) -> tuple[Any, Any, float]:
    """A size's strategy on one of these devices, its compiled train step, and the seconds of compilation."""
    form: Any = next(case.strategy for case in load_cases(SIZES[size]) if case.strategy.name == "single_device")
    strategy = (replace(form, network=Rematerialised(form.network)) if rematerialised else form).on(devices)
    lowered = strategy.train_step.lower(strategy.abstract_state(), strategy.abstract_batch())
    start = time.perf_counter()
    return strategy, lowered.compile(), time.perf_counter() - start


def row(size: str, rematerialised: bool, devices: list[Any]) -> str:
    """One step, as a row in Markdown."""
    strategy, compiled, seconds = compile_step(size, rematerialised, devices)
    flops, moved = strategy.model_flops.step, moved_bytes(compiled.as_text())
    memory = program_memory(compiled)
    assert memory is not None
    return (
        f"| `{size}`{', rematerialised' if rematerialised else ''} "
        f"| {flops / 1e12:.1f} T, {1e3 * flops / PEAKS[CHIP.kind, 'bfloat16'].flops:.0f} ms "
        f"| {memory.arguments / 1e9:.1f} + {memory.temporary / 1e9:.1f} GB "
        f"| {moved / 1e9:.0f} GB, {1e3 * moved / CHIP.memory_bandwidth:.0f} ms | {seconds:.1f} s |"
    )


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    jax.config.update("jax_platforms", "cpu")
    jax.devices()  # JAX finds its plugins
    try:
        devices = described(TARGET)
    except NotImplementedError as error:
        raise SystemExit(f"{error}: pip install jax-cuda13-plugin=={version('jax')}") from error
    with cudnn():
        rows = [row(size, rematerialised, devices) for size, rematerialised in STEPS]
    versions = ", ".join(f"{name} {release}" for name, release in stack().items())
    found = "\n".join([HEAD, *rows, "", f"One device. {versions}; {date.today()}."])
    for path in map(Path, sys.argv[1:]):
        replace_text(path, insert(path.read_text(encoding="utf-8"), NAME, found))
    print(found)
