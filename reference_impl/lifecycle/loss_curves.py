"""The losses of a run, in a file; and the comparison picture: those of several strategies over each other, and how far
each is from one device's."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reference_impl.lifecycle.run_folder import usable

SINGLE = "single_device"

COLOURS, DASHES = 10, ("-", "--", ":")
"""matplotlib's colours, after which they repeat; then a line is dashed, and then dotted."""

LINES = {"linewidth": 1.0, "antialiased": False}
"""Of a hundred lines a picture with soft edges is half as large again."""

WIDTH, WHOLE, LEAST, LINE, DPI = 10.0, 4.0, 1.2, 0.165, 80
"""Inches: of the picture's width, its least height, a row's, and that of two names of a legend; and dots per inch."""

SERIES = "losses", "seconds"
"""What a file of losses has of each step, from step ``begin`` on."""


def check_losses(file: Path, checkpoints: Path | None) -> None:
    """Raises ``ValueError`` where losses could not be written, before the steps that they are of, or would replace
    what is no file of losses."""
    if file.exists() and not file.is_file():
        saw = "a folder" if file.is_dir() else "a device or a pipe"
        raise ValueError(f"--losses {file}: expected the name of a file, saw {saw}")
    folder = file.absolute().parent
    if checkpoints is None or folder != checkpoints.absolute():  # which is made, and looked at, with the run's folder
        with usable("--losses", file):
            tempfile.TemporaryFile(dir=folder).close()
    read_losses(file)


def read_losses(file: Path) -> dict[str, Any]:
    """What a file of losses holds, of no step where there is none. Raises ``ValueError`` where it is another file."""
    if not file.exists():
        return {"begin": 0} | {name: [] for name in SERIES}
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"--losses {file} cannot be read: {error.strerror}; name another file") from error
    try:
        held = json.loads(text)
    except ValueError:
        held = None
    if not are_losses(held):
        raise ValueError(f"--losses {file}: expected a file of losses, saw {text[:60]!r}; name another file")
    return dict(held)


def are_losses(held: Any) -> bool:
    """Whether JSON is what `write_losses` writes."""
    if not isinstance(held, dict) or not all(isinstance(held.get(name), list) for name in SERIES):
        return False
    losses, seconds = (held[name] for name in SERIES)
    numbers = all(isinstance(number, int | float) for number in [*losses, *seconds])
    return numbers and len(losses) == len(seconds) and isinstance(begin := held.get("begin"), int) and begin >= 0


def losses_before(file: Path, begin: int) -> dict[str, Any]:
    """What a file of losses holds of the steps before ``begin``, where a run goes on; one from step 0 begins it anew.

    Raises ``ValueError`` where the steps of the run do not come after those, and as `read_losses`.
    """
    held = read_losses(file)
    first, count = held["begin"], len(held["losses"])
    if not begin or not count:
        return {"begin": begin} | {name: [] for name in SERIES}
    if not first <= begin <= first + count:
        raise ValueError(
            f"--losses {file}: expected the losses up to step {begin}, from which the run goes on, saw those of steps "
            f"{first} to {first + count}; name another file"
        )
    return {"begin": first} | {name: held[name][: begin - first] for name in SERIES}


def write_losses(file: Path, before: Mapping[str, Any], losses: Sequence[float], seconds: Sequence[float]) -> None:
    """The losses and the seconds of the steps of a run, as JSON, after those before them. Raises ``OSError``, and then
    the file is what it was."""
    measured = {"begin": before["begin"], "losses": [*before["losses"], *losses]}
    write = file.with_name(f"{file.name}.new")
    try:
        write.write_text(json.dumps(measured | {"seconds": [*before["seconds"], *seconds]}), encoding="utf-8")
        write.replace(file)
    finally:
        write.unlink(missing_ok=True)


def check_picture(file: Path) -> None:
    """Raises ``ValueError`` where no picture can be drawn there, before the steps that it is of."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ValueError("pictures need matplotlib: pip install 'meshproof[plots]'") from missing
    known = Figure().canvas.get_supported_filetypes()
    if file.suffix.removeprefix(".") not in known:
        raise ValueError(f"--compare {file}: expected a name that ends with one of .{', .'.join(known)}")
    with usable("--compare", file):
        tempfile.TemporaryFile(dir=file.absolute().parent).close()


def draw(panels: Mapping[str, Mapping[str, Sequence[float]]], path: Path, beside: str = SINGLE) -> None:
    """Losses by title and then by name, a row for each title: over each other, and how far each is from the one that is
    called ``beside``. In the format that the name of ``path`` ends with: one that `check_picture` knows."""
    from matplotlib.figure import Figure

    least = max(LEAST, WHOLE / len(panels))
    heights = [max(least, LINE * ((len(curves) + 1) // 2)) for curves in panels.values()]
    figure = Figure((WIDTH, sum(heights)), layout="constrained")
    rows = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights)
    for (title, curves), (losses, distances) in zip(panels.items(), rows, strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            steps, shown = (
                range(1, len(curve) + 1),
                LINES | {"color": f"C{number}", "linestyle": DASHES[number // COLOURS % 3]},
            )
            losses.plot(steps, curve, label=name, **shown)
            if name != beside:
                apart = [abs(loss - other) for loss, other in zip(curve, curves[beside], strict=True)]
                distances.plot(steps, apart, **shown)
        losses.set_title(f"{title}: loss", fontsize="small", loc="left")
        distances.set_title(f"|loss − that of {beside}|", fontsize="small", loc="left")
        distances.set_yscale("symlog", linthresh=1e-8)  # 0 where both are the same, bit for bit
        for each in (losses, distances):
            each.tick_params(labelsize="x-small")
        names = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "fontsize": "x-small", "frameon": False}
        distances.legend(*losses.get_legend_handles_labels(), ncols=2, **names)
    for each in rows[-1]:
        each.set_xlabel("step", fontsize="small")
    write = path.with_name(f"{path.stem}.new{path.suffix}")
    figure.savefig(write, dpi=DPI)
    write.replace(path)
