"""What a plan proposes, for an implementation that can build it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Proposal:
    """A strategy on a mesh, and the sizes of a transformer to train by it.

    ``strategy`` is its name in `meshproof plan`, such as ``FSDP + tensor parallel``. ``mesh`` has its axes of more than
    one device, of ``pipeline``, ``replica``, ``data`` and ``tensor``, outermost first. A step takes ``examples``
    sequences of ``length`` tokens at once: those of one microbatch, where a plan has several. The backward pass
    recomputes layers if it ``recomputes``. ``layer_parameters`` are those of one layer, whatever it is made of. 0:
    unknown.

    An implementation's module may have ``proposed(proposal)``: a `Strategy` with ``on`` that realises it. It raises
    ``LookupError``, with those that there are, where it has none.
    """

    strategy: str
    mesh: Mapping[str, int]
    recomputes: bool
    examples: int
    length: int
    layers: int
    layer_parameters: float
    d_model: int
    d_ff: int
    heads: int
    vocabulary: int
    precision: str
    optimizer: str
