"""The book: every strategy of distributed training on one page, and the truth that judges them all."""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.cases import perceptrons, pipelines
from reference_impl.forms.base import Form

FAMILIES = (perceptrons, pipelines)


def strategies() -> Iterator[Form]:
    """Every case of the book. Starts no JAX backend: meshes are made when they are first asked for."""
    for family in FAMILIES:
        yield from family.cases()
