"""The arrays of a program: in loops and tuples too, but not within a fusion."""

import pytest

from meshproof.hlo import HloError, Shape
from meshproof.hlo.arrays import held_arrays
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


def test_unreadable_text_is_refused():
    """No array is made up."""
    with pytest.raises(HloError):
        held_arrays("HloModule cut, entry_computation_layout={")
