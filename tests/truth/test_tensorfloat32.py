"""Is the bound of TensorFloat-32 honest and sharp: products without the last 13 bits stay within it, coarser do not."""

import ml_dtypes
import numpy as np
import pytest

from reference_impl.truth import CNNTruth, MLPTruth
from tests.truth.few_digits import F32, trained

TRUTH = MLPTruth((784, 128, 10)).in_tensorfloat32()


def cut(value):
    """Without its last 13 bits."""
    return (np.ascontiguousarray(value).view(np.uint32) & np.uint32(0xFFFFE000)).view(F32)


def rounded(value):
    """To the nearest number of 10 bits of mantissa, away from zero in the middle."""
    return cut((np.ascontiguousarray(value).view(np.uint32) + np.uint32(0x1000)).view(F32))


def multiplied(narrow):
    """Both operands of a product, by this."""
    return lambda a, b: narrow(a) @ narrow(b)


@pytest.mark.parametrize("narrow", [cut, rounded])
def test_tensorfloat32_stays_within_its_bound(narrow):
    """A quarter of what is allowed is never reached, and a fiftieth of it is used."""
    verdicts = trained(TRUTH, product=multiplied(narrow))
    assert all(verdict.passed and verdict.margin < 1 / 4 for verdict in verdicts), verdicts
    assert verdicts[0].margin > 1 / 50


def cut_to_bfloat16(value):
    """Without its last 16 bits."""
    return (np.ascontiguousarray(value).view(np.uint32) & np.uint32(0xFFFF0000)).view(F32)


@pytest.mark.parametrize("narrow", [cut_to_bfloat16, lambda value: value.astype(ml_dtypes.bfloat16).astype(F32)])
def test_bfloat16_does_not(narrow):
    """Three bits less are beyond the bound, cut off or rounded."""
    assert not all(verdict.passed for verdict in trained(TRUTH, product=multiplied(narrow)))


def test_float32_is_told_apart():
    """What never dropped a digit uses less than a thousandth of the bound."""
    gradients, *_ = trained(TRUTH)
    assert gradients.margin < 1e-3


def test_a_truth_that_cannot_says_so():
    """Of a model without a bound of this kind."""
    with pytest.raises(NotImplementedError, match="CNNTruth does not compute in TensorFloat-32"):
        CNNTruth().in_tensorfloat32()
