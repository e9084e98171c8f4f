"""The bytes of arguments, in tiles where a program lays them out so."""

import pytest

from meshproof.hlo import HloError
from meshproof.hlo.shapes import Shape
from meshproof.hlo.tiles import Argument, arguments


def program(*taken):
    """A program with these arguments."""
    return (
        f"HloModule m, entry_computation_layout={{({', '.join(taken)})->f32[]{{:T(128)}}}}\n\n"
        "ENTRY %main () -> f32[] {\n  ROOT %c = f32[] constant(0)\n}\n"
    )


@pytest.mark.parametrize(
    ("spelled", "size"),
    [
        ("f32[10]", 40),
        ("f32[8,64]{1,0}", 8 * 64 * 4),
        ("f32[10]{0:T(128)}", 128 * 4),
        ("s32[]{:T(128)}", 128 * 4),
        ("f32[784,16]{0,1:T(8,128)}", 16 * 896 * 4),
        ("f32[16,10]{1,0:T(8,128)}", 16 * 128 * 4),
        ("f32[64,1,8]{0,2,1:T(8,128)}", 1 * 8 * 128 * 4),
        ("bf16[64,64]{1,0:T(8,128)(2,1)}", 64 * 128 * 2),
        ("bf16[64,64]{1,0:T(8,128)(2,1)S(1)}", 64 * 128 * 2),
        ("pred[3]{0:T(512)}", 512),
        ("pred[64]{0:T(512)(128)(4,1)}", 512),
        ("f32[4]{0:S(5)}", 16),
    ],
)
def test_arguments_take_their_tiles(spelled, size):
    """Each dimension that a tile covers is rounded up to the tile's, from the most minor one."""
    assert [each.bytes for each in arguments(program("f32[2]{0}", spelled))] == [8, size]


def test_arguments_are_in_order():
    """What XLA numbers among them is no argument."""
    [first, second] = arguments(program("f32[8,2]{1,0}", "/*index=5*/s32[3]{0}"))
    assert (first, second) == (Argument(Shape("f32", (8, 2)), 64), Argument(Shape("s32", (3,)), 12))


def test_unknown_layout_is_refused():
    """A layout that is spelled otherwise is an error, not the plain bytes."""
    with pytest.raises(HloError, match=r"expected a layout such as"):
        arguments(program("f32[8]{0:Q<8>}"))
