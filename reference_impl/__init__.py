"""The book: every strategy of distributed training on one page, and the truth that judges them all."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.cases import convolutions, experts, linen, modified, perceptrons, pipelines, scanned, transformers
from reference_impl.forms.base import Form

FAMILIES = (perceptrons, modified, convolutions, linen, transformers, scanned, experts, pipelines)


def strategies() -> Iterator[Form]:
    """Every case of the book. Starts no JAX backend: meshes are made when they are first asked for."""
    for family in FAMILIES:
        yield from family.cases()
