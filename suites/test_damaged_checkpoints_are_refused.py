"""A checkpoint that was cut off looks like a whole one: a run that takes it for one goes on from wrong numbers."""

import pytest

from meshproof.chosen import first_of_its_kind


@pytest.mark.clause("CKP-3", among=first_of_its_kind)
def test_damaged_checkpoints_are_refused(case, observation, judge):
    """``restore`` MUST NOT return another state from a checkpoint that is not whole than from the whole one. (The
    largest file of the checkpoint is removed, cut to half, or emptied, and of up to three other files each one of
    these; of at most twelve files each is removed. ``restore`` raises, or returns the state of the whole checkpoint bit
    for bit. Judged of each of up to 16 cases; of more, of the first whose states have the same parts, split alike,
    saved and restored by the same code.)"""
    judge.needs(case, "save", "restore")
    judge.clear(
        f"{each.file} {each.damage}: expected an error or the state of the whole checkpoint, saw another one: "
        f"{each.difference}"
        for each in judge.see(observation.training.checkpoints.damaged)
        if each.difference is not None
    )
