"""A save in the background has nobody who waits for it: its error, and its state, are lost in silence."""

import pytest

from meshproof.chosen import first_of_its_kind


@pytest.mark.clause("CKP-5", among=first_of_its_kind)
def test_saves_in_the_background_are_whole(case, observation, judge):
    """``result()`` of a save in the background MUST raise where the checkpoint could not be written, and otherwise
    return when it is whole. (With a full disk, and then with a disk that takes it: what is restored is bitwise the
    state that ``save_async`` was called with, which the next train step donates meanwhile. Judged of each of up to 16
    cases; of more, of the first whose states have the same parts, split alike, saved and restored by the same code.)"""
    judge.needs(case, "save_async", "restore")
    saves = observation.training.checkpoints.background
    if unsaid := judge.see(saves.unsaid):
        judge.fail([f"the disk was full: expected an error of result(), saw none, and then {unsaid}"])
    whole = judge.see(saves.whole)
    judge.clear([] if whole.passed else [str(whole)])
