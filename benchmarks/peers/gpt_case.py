"""The case that is compared: the transformer of a size on a single device, trained with Adam."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshproof.cases import Case, load_cases

from ..sizes import SIZES

PEERS = ("tiny", "small", "gpt2-124m", "gpt2-124m-padded", "gpt2-xl-1.5b", "gpt2-xl-1.5b-padded")
"""The sizes that have a transformer."""

WITH_ADAM = "gpt2-124m"
"""The size whose optimizer is used for all: in the suites the smaller ones have another."""


def find_case(size: str, target: str) -> Case:
    """The case. Raises ``ValueError`` for a size without a transformer."""
    if size not in PEERS:
        raise ValueError(f"--size {size}: expected one that has a transformer: {', '.join(PEERS)}")
    case = single_device(size, target)
    optimizer = single_device(WITH_ADAM, target).strategy.optimizer  # type: ignore[attr-defined]
    return replace(case, strategy=replace(case.strategy, optimizer=optimizer))  # type: ignore[type-var]


def single_device(size: str, target: str) -> Case:
    """The transformer of a size, on one device."""
    return next(case for case in load_cases(SIZES[size], (target,)) if case.id.startswith("single_device-jax-gpt@"))


def numbers(case: Case) -> dict[str, Any]:
    """The numbers of the case, as the peer's `Spec` has them."""
    strategy: Any = case.strategy
    network = strategy.network
    while not hasattr(network, "head_dim"):
        network = network.model
    return {
        **{name: getattr(network, name) for name in ("embed", "heads", "head_dim", "blocks")},
        "dtype": case.contract.compute_dtype,
        "rematerialised": case.contract.rematerialises,
        **vars(strategy.optimizer),
    }
