"""A metric may be a function of the loss: its bound has the loss's roundings in it."""

from math import exp, inf, nan

import numpy as np
import pytest

from meshproof.contract import Step, Trajectory
from meshproof.observing.rounding import of_losses

LOSS = 4.0


def run(loss, **metrics):
    """One step."""
    held = {name: np.asarray(value, np.float32) for name, value in metrics.items()}
    return Trajectory({}, (Step(loss, {}, {}, held, {}),))


def metrics(by, true, *apart):
    """Their deviations."""
    [step] = of_losses(by, true, apart).steps
    return step.metrics


def test_the_roundings_of_the_loss_are_in_its_exponential():
    """Times its derivative, and only where the metric moves with it."""
    by, true = run(1e-6, perplexity=1e-7, rate=1e-9), run(LOSS, perplexity=exp(LOSS), rate=0.1)
    apart = [run(LOSS + by, perplexity=exp(LOSS + by), rate=0.1) for by in (1e-3, -1e-3)]
    found = metrics(by, true, *apart)
    assert found["perplexity"] == pytest.approx(1e-6 * exp(LOSS), rel=1e-2)
    assert found["rate"] == np.float32(1e-9)


@pytest.mark.parametrize("loss", [LOSS, inf, nan])
def test_what_tells_nothing_adds_nothing(loss):
    """A loss that does not move, or moves beyond all numbers."""
    by, true = run(0.0, accuracy=1e-7), run(LOSS, accuracy=0.5)
    assert metrics(by, true, run(loss, accuracy=0.5))["accuracy"] == np.float32(1e-7)
    assert np.isfinite(metrics(run(1e-6, accuracy=1e-7), true, run(loss, accuracy=nan))["accuracy"])
