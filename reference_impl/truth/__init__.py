"""What the numbers must be: NumPy in float64, no JAX, and how far float32 rounding may take them from it."""

from .gpt import GPTTruth
from .judge import ModelTruth
from .mlp import Loss, MLPTruth
from .optimizers import Adam, AveragedMomentum, Momentum, Optimizer

__all__ = ["Adam", "AveragedMomentum", "GPTTruth", "Loss", "MLPTruth", "ModelTruth", "Momentum", "Optimizer"]
