"""``python -m docs.growth TARGET … ``: how the 7B step grows with its mesh, for docs/performance.md.

It is an implementation, too: FSDP by annotation on each number of devices, and HSDP on two slices.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from reference_impl.sizes import gpt_7b

DEVICES = (8, 64, 256, 1024)


def strategies() -> Iterator[Form]:
    """On each number of devices."""
    for devices in DEVICES:
        annotated, _, in_slices = gpt_7b.strategies(devices)
        yield annotated
        yield in_slices
