"""The losses of a run, in a file; and the comparison picture: those of several strategies over each other, and how far
each is from one device's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SINGLE = "single_device"


def write_losses(file: Path, measured: dict[str, Any]) -> None:
    """The ``losses`` and ``seconds`` of the steps from ``begin`` on, as JSON: after those before them, where the file
    has them."""
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
        steps = measured["begin"] - before["begin"]
        if 0 < steps <= len(before["losses"]):
            kept = {name: before[name][:steps] + measured[name] for name in ("losses", "seconds")}
            measured = {"begin": before["begin"], **kept}
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no file of losses
    write = file.with_name(f"{file.name}.new")
    write.write_text(json.dumps(measured), encoding="utf-8")
    write.replace(file)


def draw(curves: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Losses by strategy, one of them `SINGLE`, as a picture in the format that the name of ``path`` ends with.

    Raises ``ValueError`` where matplotlib is missing or does not know the format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ValueError("pictures need matplotlib: pip install 'meshproof[plots]'") from missing
    figure = Figure((8, 6), layout="constrained")
    losses, distances = figure.subplots(2, sharex=True)
    for name, curve in curves.items():
        steps = range(1, len(curve) + 1)
        losses.plot(steps, curve, label=name)
        if name != SINGLE:
            apart = [abs(loss - alone) for loss, alone in zip(curve, curves[SINGLE], strict=True)]
            distances.plot(steps, apart, label=name)
    losses.set(title=title, ylabel="loss")
    distances.set(xlabel="step", ylabel=f"|loss − that of {SINGLE}|")
    distances.set_yscale("symlog", linthresh=1e-8)  # 0 where both are the same, bit for bit
    figure.legend(*losses.get_legend_handles_labels(), loc="outside right upper", fontsize="xx-small")
    write = path.with_name(f"{path.stem}.new{path.suffix}")
    figure.savefig(write, dpi=80)
    write.replace(path)
