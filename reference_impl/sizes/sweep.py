"""What pictures need: one thing at a time varies, the batch, the mesh or the microbatches, on models of size tiny.

Microbatches keep their size, so that a step of more of them is a step of a larger batch. A case's variant says what it
varies, where that is not in its id already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.pipelined import Pipelined
from reference_impl.sizes.scaled import ALONG_DATA, DEVICES, ONE
from reference_impl.sizes.tiny import alone_as
from reference_impl.strategies import pipeline_1f1b, pipeline_gpipe, pipeline_zero_bubble, single_device
from reference_impl.truth import Momentum

BATCHES, BATCH = (64, 1024), 256
STAGES = {"stage": 4}
MICROBATCHES, EXAMPLES = (4, 16, 32), 64
"""Beside the eight of a pipeline that varies nothing; examples of a microbatch."""


def strategies() -> Iterator[Form]:
    """Data-parallel and fully sharded by mesh, then by batch on the largest; pipelines by microbatches."""
    alone = JaxForm(single_device.PAGE, ONE, Momentum(), batch_size=BATCH)
    yield alone
    for page in ALONG_DATA:
        for devices in DEVICES:
            yield replace(alone, page=page, mesh_axes={"data": devices})
    for batch in BATCHES:
        yield (larger := replace(alone, batch_size=batch, variant=f"batch{batch}"))
        for page in ALONG_DATA:
            yield replace(larger, page=page, mesh_axes={"data": max(DEVICES)})
    gpipe = Pipelined(pipeline_gpipe.PAGE, STAGES, Momentum(), batch_size=8 * EXAMPLES)
    yield alone_as(gpipe)
    for page in (pipeline_gpipe.PAGE, pipeline_1f1b.PAGE, pipeline_zero_bubble.PAGE):
        pipeline = replace(gpipe, page=page)
        yield pipeline
        for count in MICROBATCHES:
            yield replace(pipeline, batch_size=count * EXAMPLES, microbatches=count, variant=f"microbatches{count}")
