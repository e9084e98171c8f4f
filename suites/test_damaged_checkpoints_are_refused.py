"""A checkpoint that was cut off looks like a whole one: a run that takes it for one goes on from wrong numbers."""

import pytest


@pytest.mark.clause("CKP-3")
def test_damaged_checkpoints_are_refused(case, observation, judge):
    """``restore`` MUST NOT return another state than the saved one from a checkpoint that is not whole. (The largest
    file of the checkpoint is removed, cut to half, or emptied, and of up to three other files each one of these;
    of at most twelve files each is removed. ``restore`` raises, or returns the saved state bit for bit.)"""
    judge.needs(case, "save", "restore")
    judge.clear(
        f"{each.file} {each.damage}: expected an error or the saved state, saw another state: {each.difference}"
        for each in judge.see(observation.training.checkpoints.damaged)
        if each.difference is not None
    )
