"""How much of a pipeline's time is idle. S stages, M microbatches, V chunks of layers a stage.

Source: Huang et al. 2019, "GPipe"; for V > 1 Narayanan et al. 2021, "Efficient large-scale language model training".
"""

from __future__ import annotations

from math import ceil


def efficiency(stages: float, microbatches: float, chunks: float = 1) -> float:
    """The share of a stage's time in which it works: V·M/(V·M + S − 1)."""
    work = chunks * microbatches
    return work / (work + stages - 1)


def bubble(stages: float, microbatches: float, chunks: float = 1, has_weights: bool = False) -> float:
    """The share in which it is idle: (S − 1)/(V·M + S − 1).

    V = 1 for GPipe (section 2.3) and 1F1B; V chunks per stage for interleaved 1F1B (Narayanan et al. 2021, whose
    (S − 1)/(V·M) is the bubble over the work, not over the whole step). If weight gradients have slots of their own, it
    is (S − 1)/(3·V·M + S − 1), for at least S microbatches (Qi et al. 2023, ZB-H1).
    """
    return (stages - 1) / ((3 if has_weights else 1) * chunks * microbatches + stages - 1)


def microbatches_for(stages: int, wanted: float = 0.9, chunks: int = 1) -> int:
    """The fewest microbatches for an efficiency: e/(1 − e) · (S − 1)/V, which is 9·(S − 1) for 90 %."""
    return max(1, ceil(round(wanted / (1 - wanted) * (stages - 1) / chunks, 9)))
