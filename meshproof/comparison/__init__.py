"""What changed from one report to another."""

from meshproof.comparison.comparing import compare
from meshproof.comparison.differences import CHANGES, Change, Comparison, Difference, installed

__all__ = ["CHANGES", "Change", "Comparison", "Difference", "compare", "installed"]
