"""What is on disk is the whole state: a moment or a counter that is left out shows in no loss of that step."""

import pytest

from meshproof.chosen import first_of_its_kind, first_of_its_trainer

from .applicability import either, splits

REMEDY = (
    "a device held what is split: give save the sharded arrays as they are, and let restore place each shard, as by "
    "abstract arrays with shardings"
)


@pytest.mark.clause("CKP-1", among=first_of_its_trainer)
def test_checkpoints_restore_bitwise(case, observation, judge):
    """A state that was saved and restored MUST be bitwise the saved state, in every shard and in the next train step.
    (Every leaf has the same bits, dtype and shape, and the sharding that it has after init. From both states, the next
    step reports the same loss and leaves the same state, unless a GPU adds in another order in each run. Judged of each
    of up to 16 cases; of more, of the first of each strategy, framework and model whose states are kept alike.)"""
    judge.needs(case, "save", "restore")
    checkpoints = observation.training.checkpoints
    problems = [f"restored {leaf}" for leaf in (*judge.see(checkpoints.moved), *judge.see(checkpoints.retyped))]
    restored, continued = judge.see(checkpoints.restored), judge.see(checkpoints.continued)
    problems = [*(str(verdict) for verdict in (restored, continued) if not verdict.passed), *problems]
    if not continued.passed and (reason := observation.programs.step.in_any_order):
        judge.note(f"the next step is not compared: {reason.reason}")
        problems.remove(str(continued))
    judge.clear(problems)


@pytest.mark.clause("CKP-1", applies=either(splits("parameters"), splits("optimizer_state")), among=first_of_its_kind)
def test_checkpoints_gather_nothing_on_one_device(case, observation, judge):
    """Saving and restoring MUST NOT hold all of a sharded leaf on one device. (While either runs, what Python functions
    return is looked at, and about each millisecond every array on the devices; a leaf is known by its bits, in any
    shape, unless it is one number throughout. Judged of each of up to 16 cases; of more, of the first whose states have
    the same parts, split alike, saved and restored by the same code.)"""
    judge.needs(case, "save", "restore")
    whole = judge.see(observation.training.checkpoints.whole)
    judge.clear([REMEDY, *whole] if whole else [])
