"""Bytes per device: what the compiler says of a program, and what the declared layout implies of a state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from meshproof.contract import spec_axes
from meshproof.measures.layout import LeafLayout


@dataclass(frozen=True)
class ProgramMemory:
    """A compiled program's buffers in bytes per device. ``temporary`` compares only within one backend and version."""

    arguments: int
    outputs: int
    aliased: int
    temporary: int


def program_memory(compiled: Any) -> ProgramMemory | None:
    """The compiler's own memory analysis of a program; ``None`` if the backend gives none."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return ProgramMemory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporary=analysis.temp_size_in_bytes,
    )


def is_key(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether these are the data of JAX's random keys, by their dtype and the two or four words of each."""
    return dtype == "uint32" and shape[-1:] in ((2,), (4,))


def theoretical_bytes(leaves: Iterable[LeafLayout], mesh: dict[str, int]) -> int:
    """Bytes per device of leaves that are sharded as declared: each global size, divided by the axes that split it."""
    return sum(
        prod(leaf.shape) * leaf.itemsize // prod(mesh[axis] for axis in spec_axes(leaf.declared or ()))
        for leaf in leaves
    )
