"""What is deprecated today is gone tomorrow, and a trainer that calls it stops."""

import pytest

DEPRECATED = ("DeprecationWarning", "FutureWarning")
"""How the names of such warnings end: PendingDeprecationWarning is one too, and so is NumPy's."""


@pytest.mark.clause("API-1")
def test_interfaces_exist_and_warn_of_nothing(observation, judge):
    """Every interface that a training run uses MUST exist, take what it is given, and warn of no deprecation."""
    judge.see(observation.training.steps)
    judge.clear(
        f"{warned} (at {warned.at}); expected no deprecation: replace it, or expect it in a file of expectations"
        for warned in observation.warnings
        if warned.category.endswith(DEPRECATED)
    )
