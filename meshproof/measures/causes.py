"""Why a leaf is not what it should be, as far as its numbers tell."""

from __future__ import annotations

from math import floor, isfinite, log10

import numpy as np

from meshproof.measures.parts_of_leaves import place
from meshproof.measures.verdicts import Failure, ratio

DECAYS = 0.01
"""By no more than this share of itself weights are changed by what decays them in a few steps."""


def explain(
    saw: np.ndarray,
    is_: np.ndarray,
    bound: np.ndarray,
    error: float,
    signal: float,
    name: str,
    vacuous: float,
    start: np.ndarray | None = None,
    step: float = 0.0,
) -> tuple[Failure | None, str]:
    """The failure of a leaf, if any, and its likely cause: a constant factor points at a wrong mean or sum, or of what
    was added at a wrong rate; a part that is wrong at what a device makes of its own place. (Not of what is off by no
    more than the length of a ``step``: Adam's first ones show little but signs.)
    """
    allowed = length(bound)
    share = ratio(allowed, signal)
    if isfinite(allowed) and error > allowed:
        if start is not None and np.array_equal(saw, start):
            cause = "it is what it was before the step"
        elif start is not None and (factor := multiple(saw - start, is_ - start, error)):
            cause = (
                f"what the step adds is {factor:.7g} times what it adds in {name}: its rate, or a factor of gradients"
            )
        elif factor := multiple(saw, is_, error):
            decayed = ", as another weight decay leaves it" if start is not None and abs(factor - 1) < DECAYS else ""
            cause = f"it is {factor:.7g} times {name}{decayed or common_cause(factor)}"
        elif not saw.any():
            cause = "it is all zeros: never computed, or never written back"
        else:
            where = place(saw, is_, bound) if error > 2 * step else ""
            cause = where or "by more than rounding explains, in whatever order"
        return "exceeds", f"differs from {name}: {cause}"
    if not (isfinite(allowed) and share <= vacuous):
        cause = (
            "terms cancel, or a ReLU is so near 0 that it may flip, or two choices tie, as where values are quantised: "
            "use other data or fewer steps"
        )
        return "vacuous", f"cannot be judged: its bound is {share:.2g} of the signal, more than {vacuous:g}; {cause}"
    return None, ""


def multiple(saw: np.ndarray, is_: np.ndarray, error: float) -> float:
    """How many times the other an array is, in as many digits as are known; 0 where it is no such multiple, to a tenth
    of their difference."""
    factor = float(np.vdot(is_, saw)) / length(is_) ** 2 if is_.any() else 0.0
    rest = length(saw - factor * is_)
    if abs(factor - 1) <= 1e-5 or rest >= error / 10:
        return 0.0
    known = 2 - floor(log10(abs(factor - 1)))
    return float(f"{factor:.7g}" if rest < error / 1000 else f"{factor:.{max(3, known)}g}")


def common_cause(factor: float) -> str:
    """What usually multiplies by such a factor; empty if nothing does."""
    if factor < 0:
        return ": a wrong sign"
    times = max(factor, 1 / factor)
    is_count = round(times) > 1 and abs(times - round(times)) < min(1e-3 * times, 0.1)
    if not is_count:
        return ""
    return (
        ": a sum instead of a mean, or reduced twice or never" if factor > 1 else ": a mean instead of a sum, or twice"
    )


def length(array: np.ndarray) -> float:
    """The Frobenius norm."""
    return float(np.linalg.norm(array))
