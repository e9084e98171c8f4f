"""Which dtypes may meet: what JAX refuses to promote is a finding only where something is widened."""

import jax
import jax.numpy as jnp
import pytest

from meshproof.observing.gradients import widens


@pytest.mark.parametrize(
    ("one", "other", "finding"),
    [
        ("bool", "float32", False),
        ("bool", "int32", False),
        ("int32", "float32", False),
        ("uint8", "bfloat16", False),
        ("bfloat16", "float32", True),
        ("float32", "complex64", False),
        ("bfloat16", "complex64", True),
        ("int8", "int32", True),
    ],
)
def test_what_widens_is_a_finding(one, other, finding):
    """Whole numbers and truth values take the dtype of floats, which stays; complex numbers have two of them."""
    with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion") as refused:
        jnp.ones(2, one) * jnp.ones(2, other)
    assert widens(str(refused.value)) is finding


@pytest.mark.parametrize(("dtype", "finding"), [("float32", False), ("int32", False), ("bfloat16", True)])
def test_what_meets_a_complex_number_of_python(dtype, finding):
    """Beside float32 it has as many digits; there is none of 16 bits."""
    with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion") as refused:
        1j * jnp.ones(2, dtype)
    assert widens(str(refused.value)) is finding


def test_a_refusal_in_other_words_is_a_finding():
    """What cannot be read is not taken for harmless."""
    assert widens("no implicit promotion of float32 and int32")
