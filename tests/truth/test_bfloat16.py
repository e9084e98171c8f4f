"""Is the bfloat16 bound honest and sharp: training with every rounding that bfloat16 may make stays within it."""

import ml_dtypes
import numpy as np
import pytest

from reference_impl.truth import MLPTruth
from reference_impl.truth.bfloat16 import narrow
from reference_impl.truth.rounding import exact
from tests.truth.few_digits import F32, always, once, trained

TRUTH = MLPTruth((784, 128, 10)).in_bfloat16()


def kept_in(dtype):
    """Rounding to a format, held in float32."""
    return lambda value: value.astype(dtype).astype(F32)


BF16, FLOAT8 = kept_in(ml_dtypes.bfloat16), kept_in(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize("add", [once, always])
def test_bfloat16_stays_within_its_bound(add):
    """Half of what is allowed is never reached, whether sums are rounded once or always, and a tenth of it is used."""
    verdicts = trained(TRUTH, BF16, add)
    assert all(verdict.passed and verdict.margin < 1 / 2 for verdict in verdicts), verdicts
    assert verdicts[0].margin > 1 / 10


def test_float8_does_not():
    """Four digits less are beyond the bound already in the first gradients."""
    gradients, *_ = trained(TRUTH, FLOAT8)
    assert "dense_1/kernel" in [record.path for record in gradients.failures]


def test_float32_is_told_apart():
    """What never was in bfloat16 uses less than a thousandth of the bound."""
    gradients, *_ = trained(TRUTH)
    assert gradients.margin < 1e-3


def test_a_cast_errs_by_what_its_variance_says():
    """Over all mantissas the root mean square of the error is √½ of the deviation, which is that of the worst one."""
    values = np.random.default_rng(0).uniform(1, 2, 100_000).astype(F32)
    drawn = np.sqrt(np.mean(((BF16(values) - values) / values) ** 2))
    allowed = np.sqrt(np.mean(narrow(exact(values)).variance / values.astype(np.float64) ** 2))
    assert allowed == pytest.approx(2.0**-8 / np.sqrt(3), rel=1e-6)
    assert 0.6 < drawn / allowed < 0.8


@pytest.mark.parametrize("mix", [lambda a, b: a @ b, lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a + 1.0])
def test_formats_do_not_mix(mix):
    """A bfloat16 number with a float32 one is an error, as it is in JAX under strict promotion."""
    one = exact(np.ones((2, 2)))
    with pytest.raises(TypeError, match=r"bfloat16 mixed with (Rounded|float)"):
        mix(narrow(one), one)
