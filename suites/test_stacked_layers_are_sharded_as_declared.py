"""An axis that a transform adds in front shifts all others: who forgets that shards layers instead of features."""

import pytest

from meshproof.operations.stacked.observing import misplaced


@pytest.mark.clause("OPS-3")
def test_stacked_layers_are_sharded_as_declared(stacked, moments, judge):
    """Layers stacked for scan or by vmap MUST keep parameters, gradients and optimizer state on the declared axes of
    the stacked arrays. (After init and after two steps, in every shard. By ``nnx.vmap``, ``nnx.scan``, Linen's
    ``nn.scan`` and as plain trees; for numbers of layers that divide the mesh axes and that do not; with momentum,
    Adam, ``optax.partition``, ``masked``, ``MultiSteps``, ``inject_hyperparams`` and ``ema``. And each layer is drawn
    by a key of its own.)"""
    judge.clear(misplaced(stacked, moments))
