"""The book: every strategy of distributed training on one page, and the truth that judges them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference_impl.cases import convolutions, experts, linen, modified, perceptrons, pipelines, scanned, transformers
from reference_impl.forms.base import Form
from reference_impl.proposals import proposed

__all__ = ["FAMILIES", "proposed", "several_processes", "strategies"]

several_processes = (
    *("python", "-m", "meshproof", "launch", "-n", "2", "--stuck-after", "15", "--timeout", "300", "--"),
    *("python", "-m", "reference_impl.lifecycle.multiprocess", "1000000"),
)
"""What trains over two processes until it is ended, and ends both where one is lost."""

FAMILIES = (perceptrons, modified, convolutions, linen, transformers, scanned, experts, pipelines)


def strategies() -> Iterator[Form]:
    """Every case of the book. Starts no JAX backend: meshes are made when they are first asked for."""
    for family in FAMILIES:
        yield from family.cases()


def __getattr__(name: str) -> Any:
    """``data_iterator`` and ``training_run``, where Grain is installed: they are imported when they are asked for, for
    that takes seconds."""
    if name not in ("data_iterator", "training_run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from reference_impl.lifecycle.data_loading import data_iterator
    except ModuleNotFoundError as error:
        if error.name != "grain":
            raise
        raise AttributeError("the book reads data with Grain: pip install 'meshproof[data]'") from error
    if name == "data_iterator":
        return data_iterator
    from reference_impl.lifecycle.short_run import ShortRun

    return ShortRun
