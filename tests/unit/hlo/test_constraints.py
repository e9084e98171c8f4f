"""Sharding constraints, as MLIR spells them."""

from meshproof.hlo.constraints import constraints_of, spelled_type


def test_constraints_are_read_with_their_types():
    """One that splits nothing is none."""
    text = """
    %80 = sdy.sharding_constraint %arg80 <@mesh, [{}, {}]> : tensor<32x16xi32>
    %81 = sdy.sharding_constraint %80 <@mesh, [{"data", "fsdp"}, {?}]> : tensor<32x16xi32>
    %82 = sdy.sharding_constraint %81 <@mesh, []> : tensor<f32>
    """
    assert constraints_of(text) == (("32x16xi32", (("data", "fsdp"), ())),)


def test_types_are_spelled_as_jax_takes_them():
    """64 bits are 32, where nobody enables more."""
    kinds = {"int64": "4xi32", "uint8": "4xui8", "bool": "4xi1", "bfloat16": "4xbf16", "float64": "4xf32"}
    assert {dtype: spelled_type((4,), dtype) for dtype in kinds} == kinds
