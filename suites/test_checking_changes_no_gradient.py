"""In ``shard_map`` a transpose may depend on whether JAX checks what varies: then one of the two trains on a sum."""

import pytest

from meshproof.measures.numerics import VACUOUS_IN
from meshproof.measures.numerics import judge as judge_leaves


@pytest.mark.clause("NUM-7", applies=lambda case: case.contract.explicit and not case.contract.device_dimension)
def test_checking_changes_no_gradient(case, observation, truth, judge):
    """``check_vma`` on and off MUST give the same gradients for every ``shard_map`` strategy: those of truth."""
    unchecked = judge.see(observation.gradients.unchecked)
    true, rounding = truth.value.gradients, truth.rounding.gradients
    part, vacuous = "gradients of step 1 with check_vma=False", VACUOUS_IN[case.contract.compute_dtype]
    judge.numbers([judge_leaves(unchecked, true, rounding, part, vacuous)])
