"""Has a trainer looked at in a process of its own, within a time limit."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meshproof.children import TRACEBACK, run, stack
from meshproof.contract import Proposal
from meshproof.observing.process import Settings
from meshproof.proposals.compiling import ExhaustedError, ProposalError
from meshproof.run.compile_cache import open_cache, usual_cache
from meshproof.targets import read_target
from meshproof.targets.packages import missing

DEVICES = 8
"""Virtual devices on which a trainer's meshes are made while its shapes are seen."""


def compile_proposals(
    implementation: str, target: str, devices: int, proposals: Sequence[Proposal], seconds: float
) -> dict[str, Any]:
    """What `compile_first` tells, which raises too. `ProposalError`: the compiler is not here, or takes too long."""
    if absent := missing(read_target(target)):
        raise ProposalError(f"{absent}; or --target cpu, which compiles for virtual devices of this machine")
    with tempfile.TemporaryDirectory() as folder:
        try:
            cache = open_cache(usual_cache(), os.environ.get("XLA_FLAGS", ""))
        except OSError:
            cache = Path(folder)
        asked: dict[str, Any] = {"implementation": implementation, "target": target, "cache": str(cache)}
        asked["proposals"] = [asdict(each) for each in proposals]
        environment = Settings(implementation, devices, folder).environment(target)
        return answer(asked, environment, seconds, f"--verify: expected a program for {target}")


def trainer_shapes(implementation: str, case: str | None, seconds: float) -> dict[str, Any]:
    """What `shapes_of` tells. Raises `ProposalError`, also where it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Settings(implementation, DEVICES, folder).environment("cpu")
        asked = {"implementation": implementation, "case": case}
        return answer(asked, environment, seconds, f"--impl {implementation}: expected its shapes")


def answer(asked: Mapping[str, Any], environment: Mapping[str, str], seconds: float, expected: str) -> dict[str, Any]:
    """The answer of a process to a request. Raises `ProposalError` with its own error, or for lack of an answer."""
    with tempfile.TemporaryDirectory() as folder:
        request, told = Path(folder, "request.json"), Path(folder, "answer.json")
        request.write_text(json.dumps(asked), encoding="utf-8")
        command = [sys.executable, *TRACEBACK, "-m", "meshproof.proposals", str(request), str(told)]
        ran = run(command, environment, seconds)
        if not ran.in_time:
            here = f"{expected} within {seconds:g} s (--verify-timeout); it stood here:"
            raise ProposalError("\n".join([here, *stack(ran.said)]))
        if not told.exists():
            last = [line for line in ran.said.splitlines() if line.strip()][-12:]
            raise ProposalError("\n".join([f"{expected}; the process ended with code {ran.code}:", *last]))
        found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    if "error" in found:
        raise (ExhaustedError if found["exhausted"] else ProposalError)(found["error"])
    return found
