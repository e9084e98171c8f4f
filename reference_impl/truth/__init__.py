"""What the numbers must be: NumPy in float64, no JAX, and how far float32 rounding may take them from it."""

from .batch_norm_cnn import BatchNormCNNTruth
from .cnn import CNNTruth
from .gpt import GPTTruth
from .gpt_flax import FlaxGPTTruth
from .judge import ModelTruth
from .masked import MaskedTruth
from .mlp import Loss, MLPTruth
from .moe import MoETruth
from .optimizers import Adam, AveragedMomentum, Momentum, Optimizer
from .scanned_gpt import StackedGPTTruth
from .scored import ScoredMLPTruth

__all__ = [
    "Adam",
    "AveragedMomentum",
    "BatchNormCNNTruth",
    "CNNTruth",
    "FlaxGPTTruth",
    "GPTTruth",
    "Loss",
    "MLPTruth",
    "MaskedTruth",
    "MoETruth",
    "ModelTruth",
    "Momentum",
    "Optimizer",
    "ScoredMLPTruth",
    "StackedGPTTruth",
]
