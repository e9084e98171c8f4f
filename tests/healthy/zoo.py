"""Every healthy trainer: ``pytest suites/ --impl tests.healthy.zoo``."""

from . import (
    contexts,
    eight_bits,
    equinox_trainers,
    evaluations,
    hierarchical,
    idioms,
    language_models,
    linen,
    manual,
    nnx_trainers,
    owners,
    plateaus,
    quantiles,
    raveled,
    recipes,
    reparametrised,
    sharded,
    together,
)

FAMILIES = (
    idioms,
    recipes,
    language_models,
    sharded,
    manual,
    contexts,
    together,
    equinox_trainers,
    evaluations,
    linen,
    eight_bits,
    hierarchical,
    nnx_trainers,
    owners,
    plateaus,
    quantiles,
    raveled,
    reparametrised,
)


def strategies():
    """Of all families."""
    return [strategy for family in FAMILIES for strategy in family.strategies()]
