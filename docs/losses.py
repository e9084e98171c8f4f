"""``python -m docs.losses``, in a checkout: trains every page that takes the perceptron, and draws docs/losses.png.

It takes minutes. What `python -m reference_impl.train --compare docs/losses.png --model mlp --steps 40` draws, in fewer
colours; and the picture carries the losses, beside those of the truth and what rounding may add to them.
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
from reference_impl import strategies, train
from reference_impl.forms.base import Form
from reference_impl.lifecycle.loss_curves import SINGLE, draw
from reference_impl.lifecycle.training_data import Shuffled, fields_for

LOSSES, KEY = "docs/losses.png", "Description"
MODEL, STEPS, SEED = "mlp", 40, 0
DEVICES, COLOURS = 8, 64


def pages() -> dict[str, Form]:
    """Every page of the book that takes the model, by its name."""
    names = dict.fromkeys(form.name for form in strategies() if form.framework == "jax")
    return {name: form for name in names if (form := train.takes(name, "jax", MODEL, batch=0))}


def trained(form: Form) -> list[float]:
    """The loss of each step, as `reference_impl.train` takes them."""
    run = train.Run(form, data_of(form))
    state = form.init(jax.random.key(SEED))  # type: ignore[attr-defined]
    train.train(run, state, 0, STEPS, None, 0, Console(quiet=True), train.Stop())
    return run.losses


def true(form: Form) -> dict[str, list[float]]:
    """The loss of each step in float64, and the standard deviation that float32 rounding gives it."""
    begun = form.parameters(form.init(jax.random.key(SEED)))  # type: ignore[attr-defined]
    batches = [data_of(form).batch(step) for step in range(STEPS)]
    found = form.truth.train(jax.tree.map(np.asarray, begun), batches)
    parts = {"truth": found.value, "rounding": found.rounding}
    return {name: [step.loss for step in part.steps] for name, part in parts.items()}


def data_of(form: Form) -> Shuffled:
    return Shuffled(fields_for(form.network), form.batch_size, SEED)


def carried(path: Path) -> dict[str, Any]:
    """The numbers of the picture: ``curves`` by page, ``truth`` and ``rounding``."""
    with Image.open(path) as picture:
        return json.loads(picture.info[KEY])


def save(told: dict[str, Any], path: Path) -> None:
    """Draw these numbers, and put them into the picture."""
    draw(told["curves"], f"{MODEL} (jax)", path)
    description, small = PngInfo(), BytesIO()
    description.add_text(KEY, json.dumps(told), zip=True)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    few.save(small, "PNG", optimize=True, pnginfo=description)
    replace_bytes(path, small.getvalue())


if __name__ == "__main__":
    train.use_devices(DEVICES, exact=True)
    found = {"curves": {name: trained(form) for name, form in pages().items()}}
    save(found | true(pages()[SINGLE]), Path(LOSSES))
