"""The comparison picture: the losses of several strategies over each other, and how far each is from one device's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

SINGLE = "single_device"


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
