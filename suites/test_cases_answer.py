"""A case that hangs or crashes is a result of that case alone."""

import pytest


@pytest.mark.clause("RUN-1")
def test_cases_answer(case, observation):
    """Each case MUST be observed to its end within `--case-timeout`; one that hangs or dies MUST fail, and say where it
    stood."""
    assert observation.case == case.id
