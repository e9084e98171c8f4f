"""What the numbers must be: NumPy in float64, no JAX, and how far float32 rounding may take them from it."""

from .judge import ModelTruth
from .masked import MaskedTruth
from .mlp import Loss, MLPTruth
from .optimizers import Adam, AveragedMomentum, Momentum, Optimizer

__all__ = ["Adam", "AveragedMomentum", "Loss", "MLPTruth", "MaskedTruth", "ModelTruth", "Momentum", "Optimizer"]
