"""Bytes per device: what the compiler says of a program, and what the declared layout implies of a state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from meshproof.contract import spec_axes
from meshproof.hlo.tiles import Argument
from meshproof.measures.layout import LeafLayout


@dataclass(frozen=True)
class ProgramMemory:
    """A compiled program's buffers in bytes per device. ``temporary`` compares only within one backend and version.

    ``peak`` is the most that is held at once, arguments included, as the compiler tells; ``None`` where it does not.
    """

    arguments: int
    outputs: int
    aliased: int
    temporary: int
    peak: int | None = None


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
        peak=getattr(analysis, "peak_memory_in_bytes", None) or None,
    )


def laid_out_bytes(leaves: Iterable[LeafLayout], arguments: Iterable[Argument]) -> list[int]:
    """The bytes of each leaf on a device as a program takes it: on a TPU in tiles, so that some take more than theirs.

    Leaves are in the order of the arguments. One that is no argument, as it is not read, takes its own bytes.
    """
    taken: dict[Any, deque[int]] = {}
    for each in arguments:
        taken.setdefault((each.shape.dimensions, each.shape.bytes), deque()).append(each.bytes)
    held = [(leaf.shards[0].shape, leaf.shards[0].bytes) for leaf in leaves]
    return [taken[part].popleft() if taken.get(part) else part[1] for part in held]


def is_single(leaf: LeafLayout) -> bool:
    """Whether a device holds one element of it, or it is the data of random keys."""
    return prod(leaf.shards[0].shape) == 1 or is_key(leaf.dtype, leaf.shape)


def is_key(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether these are the data of JAX's random keys, by their dtype and the two or four words of each."""
    return dtype == "uint32" and shape[-1:] in ((2,), (4,))


def theoretical_bytes(leaves: Iterable[LeafLayout], mesh: dict[str, int]) -> int:
    """Bytes per device of leaves that are sharded as declared: each global size, divided by the axes that split it."""
    return sum(
        prod(leaf.shape) * leaf.itemsize // prod(mesh[axis] for axis in spec_axes(leaf.declared or ()))
        for leaf in leaves
    )
