"""Transforms are right alone; what breaks is one around another, and around or inside ``shard_map``."""

import pytest

from meshproof.operations.observing import wrong


@pytest.mark.clause("OPS-2")
def test_transforms_give_the_one_device_result(seen_family, judge):
    """Compositions of transforms MUST give the result and the gradients that they have on one device, wherever they are
    not refused. (grad, vmap, scan, cond, jit, custom_vjp, custom_jvp, linearize, linear_transpose, and remat by its
    policies, each around each; without ``shard_map``, and with it around both, between them, and inside, with and
    without ``check_vma``; on whole numbers, so that results are equal.)"""
    judge.clear(wrong(seen_family))
