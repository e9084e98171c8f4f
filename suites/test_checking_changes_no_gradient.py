"""In ``shard_map`` a transpose may differ with ``check_vma``: one of the two then trains on summed gradients."""

import pytest

from meshproof.measures.numerics import VACUOUS_IN
from meshproof.measures.numerics import judge as judge_leaves
from meshproof.measures.trajectories import cancelled


@pytest.mark.clause("NUM-7", applies=lambda case: case.contract.explicit and not case.contract.device_dimension)
def test_checking_changes_no_gradient(case, observation, truth, judge):
    """The gradients of every ``shard_map`` strategy MUST equal truth with ``check_vma=False`` as well. (As the strategy
    itself sets it, NUM-2 and MIX-1 judge them.)"""
    unchecked = judge.see(observation.gradients.unchecked)
    true, rounding = truth.value.gradients, truth.rounding.gradients
    part, vacuous = "gradients of step 1 with check_vma=False", VACUOUS_IN[case.contract.compute_dtype]
    judge.numbers([judge_leaves(unchecked, true, rounding, part, vacuous, cancelled(truth))])
