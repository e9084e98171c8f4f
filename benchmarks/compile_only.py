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
from jax.experimental import topologies
from jax.sharding import PartitionSpec

from meshproof.cases import load_cases
from meshproof.files import insert, replace_text
from meshproof.hlo.parser import parse
from meshproof.measures.memory import program_memory
from reference_impl.models import attention
from reference_impl.modifiers.rematerialisation import Rematerialised

from .peaks import PEAKS
from .record import stack
from .sizes import SIZES

NAME = "compile-only"
KIND = "NVIDIA H200"
BANDWIDTH = 4.8e12
"""Bytes per second (NVIDIA H200 datasheet)."""

TARGET = f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {BANDWIDTH:.0f}
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 150754820096
  shared_memory_per_block_optin: 232448
  cuda_compute_capability {{ major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "{KIND}"
"""

HOPPER = SimpleNamespace(
    platform="gpu", client=SimpleNamespace(platform_version="cuda 13000"), compute_capability="9.0"
)

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
    strategy = replace(form, network=Rematerialised(form.network)) if rematerialised else replace(form)
    vars(strategy)["mesh"] = strategy.make_mesh(devices)
    state = strategy.init.lower(jax.random.key(0)).out_info
    tokens = jax.ShapeDtypeStruct((strategy.batch_size, 1024), "int32", sharding=strategy.on_mesh(PartitionSpec()))
    lowered = strategy.train_step.lower(state, {"x": tokens, "y": tokens})
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
        f"| {flops / 1e12:.1f} T, {1e3 * flops / PEAKS[KIND, 'bfloat16'].flops:.0f} ms "
        f"| {memory.arguments / 1e9:.1f} + {memory.temporary / 1e9:.1f} GB "
        f"| {moved / 1e9:.0f} GB, {1e3 * moved / BANDWIDTH:.0f} ms | {seconds:.1f} s |"
    )


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    jax.config.update("jax_platforms", "cpu")
    jax.devices()  # JAX finds its plugins
    try:
        described = topologies.get_topology_desc("", "cuda", target_config=TARGET, topology="1x1x1")
    except NotImplementedError as error:
        raise SystemExit(f"{error}: pip install jax-cuda13-plugin=={version('jax')}") from error
    with cudnn():
        rows = [row(size, rematerialised, described.devices) for size, rematerialised in STEPS]
    versions = ", ".join(f"{name} {release}" for name, release in stack().items())
    found = "\n".join([HEAD, *rows, "", f"One device. {versions}; {date.today()}."])
    for path in map(Path, sys.argv[1:]):
        replace_text(path, insert(path.read_text(encoding="utf-8"), NAME, found))
    print(found)
