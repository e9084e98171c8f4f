"""A case that hangs or crashes is a result of that case alone."""

import pytest


@pytest.mark.clause("RUN-1")
def test_cases_answer(case, observation):
    """Each case MUST be observed to its end within `--case-timeout`. (One that hangs or dies is a failed case that says
    where it stood, and the next is judged. Its other clauses are not, and name this one; without it they fail.)"""
    assert observation.case == case.id
