"""What a model must compute, in floating-point operations, from shapes alone."""

from __future__ import annotations

from meshproof.contract import ModelFlops
from reference_impl.models import Model

FORMULA = (
    "2 per multiply-add of an example's matrix products forward and 4 backward, times the batch; of a transformer that "
    "is 6·N + 12·L·H·Q·T a token (Chowdhery et al. 2022, PaLM, appendix B): causal attention is not halved, N counts "
    "kernels and the tied embedding, not positions, norms and biases; what is computed anew counts once"
)


def model_flops(model: Model, batch: int) -> ModelFlops:
    """The operations of a global batch of so many examples."""
    forward = 2.0 * batch * model.products
    return ModelFlops(forward, 3 * forward, FORMULA)
