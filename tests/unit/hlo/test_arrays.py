"""The arrays of a program: in loops and tuples too, but not within a fusion."""

import pytest

from meshproof.hlo import HloError, Shape
from meshproof.hlo.arrays import element_types, held_arrays
from tests.unit.hlo.texts import module

FUSED = """
%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %wide = f32[900]{0} broadcast(%p), dimensions={}
  ROOT %narrow = f32[4]{0} slice(%wide), slice={[0:4]}
}
"""


def test_what_a_fusion_computes_on_its_way_is_not_held():
    """The fusion's own result and operands count, its inside does not."""
    entry = """%p = f32[4]{0} parameter(0)
    ROOT %f = f32[4]{0} fusion(%p), kind=kLoop, calls=%fused"""
    assert held_arrays(module(entry, FUSED)) == {Shape("f32", (4,))}


def test_an_element_of_a_tuple_is_held():
    """A loop's state is arrays, not one array."""
    entry = """%p = f32[4]{0} parameter(0)
    %u = u32[7,8]{1,0} iota(), iota_dimension=0
    ROOT %t = (f32[4]{0}, u32[7,8]{1,0}) tuple(%p, %u)"""
    assert Shape("u32", (7, 8)) in held_arrays(module(entry))


COUNTED = "%count () -> u32[8] {\n  ROOT %i = u32[8]{0} iota(), iota_dimension=0\n}\n"


@pytest.mark.parametrize(
    ("made", "held"),
    [
        ("u32[8]{0} fusion(), kind=kLoop, calls=%count", False),
        ("u32[8]{0} add(%ones, %ones)", False),
        # Random bits are made of a key, whole zeros are a whole parameter, and so is what nobody can read.
        ("u32[8]{0} add(%ones, %key)", True),
        ("f32[8]{0} broadcast(%zero), dimensions={}", True),
        ('u32[8]{0} custom-call(%ones), custom_call_target="bits"', True),
        ("u32[8]{0} rng-bit-generator(%ones), algorithm=rng_default", True),
    ],
)
def test_counters_are_no_values(made, held):
    """Integers of positions and constants alone are not held, unless nothing that is held is as large."""
    entry = f"""%p = f32[2,16]{{1,0}} parameter(0)
    %key = u32[8]{{0}} parameter(1)
    %zero = f32[] constant(0)
    %one = u32[] constant(1)
    %ones = u32[8]{{0}} broadcast(%one), dimensions={{}}
    %made = {made}
    ROOT %r = f32[2,16]{{1,0}} negate(%p)"""
    text = module(entry, COUNTED).replace("%key = u32[8]", "%key = u32[1,8]")
    shape = Shape(made[:3], (8,))
    assert (shape in held_arrays(text)) == held
    large = text.replace("u32[8]", "u32[64]").replace("f32[8]", "f32[64]")
    assert Shape(made[:3], (64,)) in held_arrays(large)


def test_unreadable_text_is_refused():
    """No array is made up."""
    with pytest.raises(HloError):
        held_arrays("HloModule cut, entry_computation_layout={")


def test_a_mask_in_fewer_digits_has_lost_none():
    """Of truth values, integers and constants a program in double precision may make float32: a mask, an accuracy."""
    entry = """%p = f64[4]{0} parameter(0)
    %i = s32[4]{0} parameter(1)
    %mask = f32[4]{0} convert(%i)
    %wide = f64[4]{0} convert(%mask)
    ROOT %m = f64[4]{0} multiply(%p, %wide)"""
    assert element_types(module(entry)) == {"f64", "s32"}


@pytest.mark.parametrize(
    "narrows",
    [
        "%n = f32[4]{0} convert(%p)",
        "%n = f32[4,4]{1,0} dot(%p, %p), lhs_contracting_dims={}, rhs_contracting_dims={}",
        "%n = f32[4]{0} fusion(%p), kind=kLoop, calls=%rounds",
    ],
)
def test_what_is_made_of_wider_numbers_has_lost_digits(narrows):
    """By a cast, by a product's own type, and inside of a fusion; and what is handed in in fewer digits has fewer."""
    rounds = """%rounds (p: f64[4]) -> f32[4] {
  %p = f64[4]{0} parameter(0)
  ROOT %c = f32[4]{0} convert(%p)
}
"""
    entry = f"""%p = f64[4]{{0}} parameter(0)
    {narrows}
    ROOT %r = f64[4]{{0}} convert(%n)"""
    assert "f32" in element_types(module(entry, rounds))
    assert "f32" in element_types(module("ROOT %p = f32[4]{0} parameter(0)"))
