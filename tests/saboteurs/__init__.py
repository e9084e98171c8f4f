"""Planted faults: an implementation for ``pytest suites/ --impl tests.saboteurs``.

Each strategy has one fault and its name; its case stands in `CAUGHT_BY` beside the clauses that must catch it.
``healthy_*`` are the same constructions without a fault, and must pass.
"""

from collections.abc import Iterator
from typing import Any

from tests.saboteurs import (  # noqa: F401 - importing them plants their faults
    averages,
    batch_norm,
    budgets,
    collective_matmul,
    collectives,
    columns,
    communication,
    contexts,
    derivations,
    diverse,
    drawing,
    drawing_in_loops,
    drawing_keys,
    drawing_noise,
    drawing_rows,
    eight_bits,
    epsilons,
    evaluating,
    evaluations,
    experts,
    hierarchical,
    kept,
    layout,
    left_out,
    lifecycle,
    linen,
    metrics,
    modifiers,
    narrower,
    numbers,
    out_of_order,
    owners,
    pipelines,
    plateaus,
    pmap,
    positions,
    processes,
    published,
    quantiles,
    raveled,
    retraced,
    rows,
    running,
    saving,
    scans,
    sharded_state,
    short,
    stages_gpt,
    stages_nnx,
    states,
    strangers,
    tensorfloat32,
    together,
    training_loops,
    transformers,
    truths,
    two_axes,
    vocabularies,
)
from tests.saboteurs.planting import CAUGHT_BY, PLANTED

__all__ = ["CAUGHT_BY", "strategies"]


def strategies() -> Iterator[Any]:
    """The healthy ones, and one strategy per fault."""
    return iter(PLANTED)
