"""What is deprecated today is gone tomorrow, and a trainer that calls it stops."""

import pytest

DEPRECATED = ("DeprecationWarning", "FutureWarning")
"""How the names of such warnings end: PendingDeprecationWarning is one too, and so is NumPy's."""


@pytest.mark.clause("API-1")
def test_interfaces_exist_and_warn_of_nothing(observation, judge):
    """Every interface that a training run uses MUST exist, accept its arguments, and raise no deprecation warning."""
    judge.see(observation.training.steps)
    judge.clear(
        f"expected no deprecation, saw {warned} (at {warned.at}); replace the call, or list it in a file of "
        f"expectations"
        for warned in observation.warnings
        if warned.category.endswith(DEPRECATED)
    )
