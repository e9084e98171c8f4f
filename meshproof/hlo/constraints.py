"""What a program splits by hand, as JAX wrote it, before any compiler: its sharding constraints."""

from __future__ import annotations

import re

CONSTRAINT = re.compile(r"sdy\.sharding_constraint %\S+ <@\w+, \[(.*)\]> : tensor<([^>]+)>")
DIMENSION = re.compile(r"\{([^}]*)\}")
AXIS = re.compile(r'"([^"]+)"')

Constraint = tuple[str, tuple[tuple[str, ...], ...]]
"""The type of a tensor as MLIR spells it (``32x16xi32``), and the mesh axes of each of its dimensions."""


def constraints_of(source: str) -> tuple[Constraint, ...]:
    """The constraints of a program in StableHLO that split something, in its order."""
    found = (
        (kind, tuple(tuple(AXIS.findall(dimension)) for dimension in DIMENSION.findall(spec)))
        for spec, kind in CONSTRAINT.findall(source)
    )
    return tuple(each for each in found if any(each[1]))


def spelled_type(shape: tuple[int, ...], dtype: str) -> str:
    """The type of an array as MLIR spells it; 64 bits are 32, as JAX takes them."""
    dtype = dtype.replace("64", "32")
    kinds = {"int": "i", "uint": "ui", "float": "f", "bfloat": "bf"}
    kind = dtype.rstrip("0123456789")
    element = "i1" if dtype == "bool" else f"{kinds.get(kind, kind)}{dtype.removeprefix(kind)}"
    return "x".join([*map(str, shape), element])
