"""``python -m docs.losses``, in a checkout: trains every page of the book, and draws docs/losses.png.

It takes many minutes. What `python -m reference_impl.train --compare docs/losses.png --steps 40` draws, beside the
truth and in fewer colours; and the picture carries the losses, those of the truth, and what rounding may add to them.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rich.console import Console

from meshproof.files import replace_bytes
from reference_impl import train
from reference_impl.forms.base import Form
from reference_impl.lifecycle.choosing import begun, panels
from reference_impl.lifecycle.loss_curves import draw
from reference_impl.lifecycle.training_data import Shuffled, fields_for

LOSSES, KEY, TRUTH = "docs/losses.png", "Description", "the truth"
STEPS, SEED = 40, 0
DEVICES, COLOURS = 8, 32


def pages() -> dict[str, dict[str, Form]]:
    """Every page of the book, by model and by its name."""
    return panels("jax", "", batch=0)


def trained(form: Form) -> list[float]:
    """The loss of each step, as `reference_impl.train` takes them, in the fewest digits that float32 needs."""
    run = train.Run(form, data_of(form))
    train.train(run, begun(form, SEED), 0, STEPS, None, 0, Console(quiet=True), train.Stop())
    return [float(str(np.float32(loss))) for loss in run.losses]


def true(form: Form) -> dict[str, list[float]]:
    """The loss of each step in float64, and the standard deviation that float32 rounding gives it."""
    start = form.parameters(begun(form, SEED))
    batches = [data_of(form).batch(step) for step in range(STEPS)]
    found = form.truth.train(jax.tree.map(np.asarray, start), batches)
    parts = {"truth": found.value, "rounding": found.rounding}
    return {name: [step.loss for step in part.steps] for name, part in parts.items()}


def subject(form: Form) -> dict[str, Any]:
    """What is trained, on which data: after another model, optimizer or data set the picture is of yesterday."""
    return {"network": repr(form.network), "optimizer": repr(form.optimizer), "data": data_of(form).identity}


def data_of(form: Form) -> Shuffled:
    return Shuffled(fields_for(form.network), form.batch_size, SEED)


def carried(path: Path) -> dict[str, Any]:
    """The numbers of the picture, by model: its ``subject``, ``curves`` by page, ``truth`` and ``rounding``."""
    with Image.open(path) as picture:
        return json.loads(picture.info[KEY])


def save(told: dict[str, Any], path: Path) -> None:
    """Draw these numbers, and put them into the picture."""
    draw({title: {TRUTH: of["truth"]} | of["curves"] for title, of in told.items()}, path, TRUTH)
    description, small = PngInfo(), BytesIO()
    description.add_text(KEY, json.dumps(told), zip=True)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    few.save(small, "PNG", optimize=True, pnginfo=description)
    replace_bytes(path, small.getvalue())


if __name__ == "__main__":
    train.use_devices(DEVICES, exact=True)
    found = {}
    for title, forms in pages().items():
        print(title, flush=True)
        *_, last = forms.values()
        curves = {name: trained(form) for name, form in forms.items()}
        found[title] = {"subject": subject(last), "curves": curves} | true(last)
    save(found, Path(LOSSES))
