"""Both frameworks measured in one run: pairs of fresh processes whose windows take turns A B B A.

    A  JAX: the step of the book, jitted, its state donated
    B  PyTorch: the same model under ``torch.compile``, Adam fused on CUDA

Both start from the same parameters and train on the same batches, and the losses of both are judged as in `pytest
benchmarks/` (`benchmarks.judges`): by the truth in float64 if NumPy can compute it, else by the single device in
float32, within a tenth of the fall of its loss. A window with another loss, or one in which anything compiles, ends the
run, and nothing is saved.
"""

from __future__ import annotations

import datetime
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from meshproof.timing.ratios import compare_pairs, median_interval, span

from .. import peaks
from ..judges import Judge
from ..record import matmul_precision, throughput
from ..window import STEPS
from .gpt_case import find_case, numbers
from .jax_side import JaxSide
from .processes import PeerError, Side

SCHEMA = 1
"""The version of a result's format."""

FRAMEWORKS = ("jax", "torch")
SPEED, AGREEMENT = "speed", "that the two agree; on a CPU the times say nothing"
"""What a result compares, on an accelerator and without one."""

DRIVER = ("nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader")


def measure(size: str, target: str, rounds: int, sessions: int, say: Callable[[str], object]) -> dict[str, Any]:
    """The result of a size. Raises `PeerError`, and ``ValueError`` for a size without a transformer."""
    from .gpt import Spec
    from .torch_side import TorchSide, device_of

    case, _ = find_case(size, target), device_of(target)
    with tempfile.TemporaryDirectory(prefix="meshproof-peers-") as folder:
        handover = Path(folder) / "start.npz"
        say("start values, batches, and what their losses must be")
        with closing(Side("jax", JaxSide, size, target)) as jax:
            judge = jax.ask("hand_over", handover)
        found = []
        for i in range(sessions):
            say(f"processes {i + 1} of {sessions}: compiling")
            with (
                closing(Side("jax", JaxSide, size, target)) as jax,
                closing(Side("torch", TorchSide, handover, Spec(**numbers(case)), target)) as torch,
            ):
                jax.ask("warm_up", judge)
                torch.ask("warm_up")
                found.append(take_turns((jax, torch), judge, rounds, say))
    return {
        "schema": SCHEMA,
        "size": size,
        "measured": SPEED if target == "native" else AGREEMENT,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "driver": driver(),
        "identity": {
            **numbers(case),
            "batch_size": case.strategy.batch_size,
            "matmul_precision": matmul_precision(case),
            "steps_per_window": STEPS,
            "rounds": rounds,
            "sessions": sessions,
        },
        "judge": asdict(judge) | {"name": judge.name},
        **summary(case, found),
    }


def take_turns(sides: Sequence[Side], judge: Judge, rounds: int, say: Callable[[str], object]) -> dict[str, Any]:
    """The windows of one pair of processes, and the facts of each side."""
    windows: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for number, place in enumerate(places(rounds)):
        side = sides[place]
        window = side.ask("window")
        if problem := judge.problem(window["losses"]):
            raise PeerError(f"{side.name}: {problem}; no time is saved")
        windows[side.name].append(window)
        say(f"round {number // 2 + 1} of {rounds}: {side.name} {1e3 * window['seconds']:.2f} ms a step")
    return {side.name: {"windows": windows[side.name], "facts": side.ask("facts")} for side in sides}


def places(rounds: int) -> Iterator[int]:
    """Whose turn it is: A B B A, and so on."""
    for i in range(rounds):
        yield from (0, 1) if i % 2 == 0 else (1, 0)


def summary(case: Any, sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The seconds of a step of both, the rates that follow, and JAX's time over PyTorch's."""
    kind, dtype = sessions[0]["jax"]["facts"]["machine"]["device_kind"], case.contract.compute_dtype
    flops, batch = case.strategy.model_flops, next(iter(case.strategy.batches(1)))
    frameworks = {}
    for name in FRAMEWORKS:
        rounds = [[window["seconds"] for window in session[name]["windows"]] for session in sessions]
        middle = median(seconds for each in rounds for seconds in each)
        intervals = [median_interval(each) for each in rounds]
        memory = [session[name]["facts"]["peak_memory_bytes"] for session in sessions]
        frameworks[name] = {
            "seconds_per_step": {
                "median": middle,
                "low": min(low for _, low, _ in intervals),
                "high": max(high for *_, high in intervals),
            },
            **throughput(batch, middle),
            "mfu": peaks.utilisation(flops.step, middle, 1, kind, dtype),
            "peak_memory_bytes": None if None in memory else max(memory),
            "losses": sessions[0][name]["windows"][0]["losses"],
            "rounds": rounds,
            "facts": sessions[0][name]["facts"],
        }
    pairs = zip(*(frameworks[name]["rounds"] for name in reversed(FRAMEWORKS)), strict=True)
    ratio = span([compare_pairs(torch, jax) for torch, jax in pairs])
    apart = np.subtract(*(frameworks[name]["losses"] for name in FRAMEWORKS))
    return {
        "frameworks": frameworks,
        "jax_over_torch": vars(ratio) | {"verdict": ratio.verdict()},
        "losses_apart": float(np.abs(apart).max()),
        "formulas": {"model_flops": flops.formula, "mfu": peaks.FORMULA},
        "model_flops": flops.step,
    }


def driver() -> str | None:
    """The GPUs and their driver, as ``nvidia-smi`` names them; ``None`` without it."""
    try:
        return subprocess.run(DRIVER, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
