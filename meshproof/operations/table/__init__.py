"""The operations, transforms, programs and stacked layers that every run with the reference implementation judges."""

from __future__ import annotations

from meshproof.operations import Operation
from meshproof.operations.growing import GrowingProgram
from meshproof.operations.growing.table import PROGRAMS
from meshproof.operations.stacked.observing import StackedCase
from meshproof.operations.stacked.table import stacked_cases
from meshproof.operations.table.copies import COPIES
from meshproof.operations.table.functions import FUNCTIONS
from meshproof.operations.table.indexing import INDEXING
from meshproof.operations.table.modules import MODULES
from meshproof.operations.table.networks import NETWORKS
from meshproof.operations.table.optimizers import OPTIMIZERS
from meshproof.operations.table.products import PRODUCTS
from meshproof.operations.table.reductions import REDUCTIONS
from meshproof.operations.transforms import TransformFamily
from meshproof.operations.transforms.table import FAMILIES


def operations() -> list[Operation]:
    """Operations that training uses."""
    return [*COPIES, *REDUCTIONS, *PRODUCTS, *INDEXING, *NETWORKS, *FUNCTIONS, *MODULES, *OPTIMIZERS]


def transforms() -> list[TransformFamily]:
    """Compositions of transforms."""
    return [*FAMILIES]


def programs() -> list[GrowingProgram]:
    """Programs of many layers."""
    return [*PROGRAMS]


def stacked_layers() -> list[StackedCase]:
    """Layers that are stacked by each framework."""
    return [*stacked_cases()]
