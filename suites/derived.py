"""What must move over the axis that splits the examples, from shapes and layouts: no budget is evidence for itself."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from math import prod

from meshproof.cases import Case
from meshproof.contract import Operation, Part
from meshproof.layout import LeafLayout
from suites.applicability import data_axis, mesh_axes


def bytes_in_use(leaves: Iterable[LeafLayout], case: Case, part: Part, only_split: bool = False) -> int:
    """Bytes per device of parameters that may rest split over the data axis, but are computed with whole along it.

    Of those that the contract declares in this part, so that what is frozen has no gradient; or of those among them
    that it splits there over that axis.
    """
    total = 0
    for leaf in leaves:
        specs = getattr(case.contract, part)
        spec = next((specs[pattern] for pattern in specs if fnmatchcase(leaf.path, pattern)), None)
        if spec is not None and (not only_split or data_axis(case) in mesh_axes(spec)):
            others = [axis for axis in mesh_axes(leaf.declared or ()) if axis != data_axis(case)]
            total += leaf.itemsize * prod(leaf.shape) // prod(case.mesh[axis] for axis in others)
    return total


def budgeted(case: Case, payload: str, *operations: Operation) -> tuple[int, str]:
    """Bytes of a payload that the step's budget moves over the data axis by any of these operations, and its lines."""
    lines = [
        line
        for line in case.contract.step or ()
        if line.payload == payload and line.operation in operations and data_axis(case) in line.axes
    ]
    return sum(line.bytes for line in lines), f"budget: {'; '.join(map(str, lines)) or f'no line for {payload}'}"
