"""Values that are rounded to 8 bits: what a contract may say of them."""

import pytest

from meshproof.contract import Contract


def test_a_contract_names_known_types_beside_sixteen_bits():
    """Else it says what may stand there, and why."""
    assert Contract(compute_dtype="float16", quantised=("float8_e5m2",)).quantised == ("float8_e5m2",)
    with pytest.raises(ValueError, match=r"Contract.quantised has 'int8'; expected \('float8_e4m3fn', 'float8_e5m2'\)"):
        Contract(compute_dtype="bfloat16", quantised=("int8",))
    with pytest.raises(ValueError, match=r"Contract.quantised beside compute_dtype 'float32'; expected one of"):
        Contract(quantised=("float8_e4m3fn",))
    with pytest.raises(TypeError, match=r"Contract.quantised is 'float8_e5m2'; expected a tuple"):
        Contract(compute_dtype="bfloat16", quantised="float8_e5m2")
