"""The JAX side's start, in a file: float32 parameters by path, and the batches of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Batch = Mapping[str, np.ndarray]


def write_handover(path: Path, parameters: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> None:
    """Write parameters and batches to a file."""
    start = {f"parameter/{name}": value for name, value in parameters.items()}
    fields = {f"batch/{i}/{name}": value for i, batch in enumerate(batches) for name, value in batch.items()}
    np.savez(path, **start, **fields)


def read_handover(path: Path) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """The parameters by path, and the batches in their order."""
    parameters, batches = {}, {}
    with np.load(path) as file:
        for key in file.files:
            kind, _, name = key.partition("/")
            if kind == "parameter":
                parameters[name] = file[key]
            else:
                number, _, field = name.partition("/")
                batches.setdefault(int(number), {})[field] = file[key]
    return parameters, [batches[number] for number in sorted(batches)]
