"""Single device: everything is whole, nothing moves. The yardstick of every other page.

parameters       whole
gradients        whole
optimizer state  whole
batch            whole
forward moves    nothing
step moves       nothing
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page

PAGE = Page(
    name="single_device",
    compute=Mapping(),
    parameters=Mapping(),
    gradients=Mapping(),
    optimizer=Mapping(),
    communication=Budget(),
)
