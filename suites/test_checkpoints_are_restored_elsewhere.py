"""The fleet that resumes a run is seldom the one that began it: a restore that knows one mesh is found too late."""

import pytest

from meshproof.chosen import first_of_its_trainer
from meshproof.measures.verdicts import Verdict

REMEDY = (
    "strategies of one framework, model and variant read each other's checkpoints: restore by the layout of the one "
    "that restores; one whose format is its own gets a `variant` of its own"
)


@pytest.mark.clause("CKP-2", among=first_of_its_trainer)
def test_checkpoints_are_restored_elsewhere(case, observation, judge):
    """A checkpoint that is restored onto another mesh or by another strategy MUST give the same numbers in the layout
    of the strategy that restores it. (Another strategy of the same framework, model and variant, whose state has the
    same leaves: it restores what this one saved, and this one what the other then saved; the latter of each of up to 16
    cases, and of more of the first whose states have the same parts, split alike, saved and restored by the same code.
    Every leaf has the saved bits, dtype and shape, and the sharding that it has after init. Judged of each of up to 16
    cases; of more, of the first of each strategy, framework and model whose states are kept alike.)"""
    judge.needs(case, "save", "restore")
    checkpoints = observation.training.checkpoints
    problems = [
        f"saved by {each.saved_by}, restored by {each.restored_by}: {problem}"
        for each in judge.see(checkpoints.elsewhere)
        for problem in each.problems
    ]
    restores_its_own = isinstance(checkpoints.restored, Verdict) and checkpoints.restored.passed
    judge.clear([REMEDY, *problems] if problems and restores_its_own else problems)
