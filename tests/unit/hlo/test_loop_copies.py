"""Copies inside loops are found, as often as they run; those outside, small ones and moves between memories are not."""

from math import prod

import pytest

from meshproof.hlo.loop_copies import copies_in_loops
from meshproof.hlo.shapes import Shape
from meshproof.measures.layout import LeafLayout, Shard
from suites.test_state_is_updated_in_place import held_so
from tests.unit.hlo.texts import module, stored

STATE = "(s32[], f32[64]{0})"
COPYING = """
%copying (a: f32[64]) -> f32[64] {
  %a = f32[64]{0} parameter(0)
  ROOT %b = f32[64]{0} copy(%a)
}
"""


def looped(lines: str, outside: str = "") -> str:
    """A loop of five trips with these lines on %x, an array of 256 bytes."""
    loop = f"""
%body (s: {STATE}) -> {STATE} {{
  %s = {STATE} parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[64]{{0}} get-tuple-element(%s), index=1
  {lines}
  ROOT %t = {STATE} tuple(%i, %x)
}}

%condition (s: {STATE}) -> pred[] {{
  %s = {STATE} parameter(0)
  ROOT %c = pred[] custom-call(%s), custom_call_target="x"
}}
"""
    entry = f"""%p = f32[64]{{0}} parameter(0)
    {outside}
    %i = s32[] constant(0)
    %t = {STATE} tuple(%i, %p)
    %w = {STATE} while(%t), condition=%condition, body=%body, backend_config={{"known_trip_count":{{"n":"5"}}}}
    ROOT %r = f32[64]{{0}} get-tuple-element(%w), index=1"""
    return module(entry, COPYING + loop)


COPY = "%c1 = f32[64]{0} copy(%x)"


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (COPY, 1),
        ("%c1 = f32[64]{0} fusion(%x), kind=kLoop, calls=%copying", 1),
        ("%c1 = (f32[64]{0}, f32[64]{0}, u32[]) copy-start(%x)\n  %c2 = f32[64]{0} copy-done(%c1)", 1),
        ("%c1 = f32[64]{0:S(1)} copy(%x)", 0),
        ("%c1 = (f32[64]{0:S(1)}, f32[64]{0}, u32[]) copy-start(%x)\n  %c2 = f32[64]{0:S(1)} copy-done(%c1)", 0),
        ("%c1 = f32[64]{0} negate(%x)", 0),
    ],
)
def test_a_copy_in_a_loop_is_found(lines: str, count: int) -> None:
    """A copy, one that a fusion makes, and an asynchronous one; a prefetch into another memory is none."""
    found = [(copy.executions, copy.shape.bytes, copy.argument) for copy in copies_in_loops(looped(lines), 256)]
    assert found == [(5, 256, 0)] * count


@pytest.mark.parametrize(
    ("before", "argument"),
    [
        ("%u = f32[64]{0} dynamic-update-slice(%x, %one, %i)\n  %c = f32[64]{0} copy(%u)", 0),
        ("%u = f32[64]{0} negate(%x)\n  %c = f32[64]{0} copy(%u)", None),
    ],
    ids=["changed in part", "computed of it"],
)
def test_what_is_copied_is_told(before: str, argument: int | None) -> None:
    """An argument that the loop carries is one after its parts were changed; what is computed of it is not."""
    [copy] = copies_in_loops(looped(f"%one = f32[1]{{0}} slice(%x), slice={{[0:1]}}\n  {before}"), 256)
    assert copy.argument == argument


def test_a_copy_in_a_branch_is_of_nothing_known() -> None:
    """A branch takes from a tuple that is no loop's, and may return a smaller one."""
    three = "(s32[], f32[64]{0}, f32[64]{0})"
    branches = "".join(
        f"""
%{name} (b: {three}) -> (f32[64]) {{
  %b = {three} parameter(0)
  %y = f32[64]{{0}} get-tuple-element(%b), index=2
  %z = f32[64]{{0}} copy(%y)
  ROOT %r = (f32[64]{{0}}) tuple(%z)
}}
"""
        for name in ("one", "two")
    )
    chosen = f"""%both = {three} tuple(%i, %x, %x)
  %q = pred[] custom-call(%i), custom_call_target="x"
  %f = (f32[64]{{0}}) conditional(%q, %both, %both), true_computation=%one, false_computation=%two"""
    copies = copies_in_loops(looped(chosen).replace("%copying", f"{branches}\n%copying", 1), 256)
    assert [copy.argument for copy in copies] == [None, None]


def test_small_copies_and_those_outside_are_not() -> None:
    """What is smaller than asked for, or runs once, is left out; unknown trips make the number of copies unknown."""
    assert copies_in_loops(looped(COPY), 257) == ()
    assert copies_in_loops(looped("", COPY.replace("%x", "%p")), 1) == ()
    [copy] = copies_in_loops(looped(COPY).replace("known_trip_count", "trips"), 1)
    assert (copy.name, copy.executions) == ("c1", None)


def test_state_copied_in_a_real_loop_is_found() -> None:
    """One copy of a carried stack of parameters, planted in the body of a real TPU loop, is the one that is found."""
    text = stored("tpu-0.12.0.1-scanned_layers")
    assert copies_in_loops(text, 100_000) == ()
    parameter = next(line for line in text.splitlines() if line.startswith("  %wide.param.4 = "))
    planted = f"{parameter}\n  %whole = bf16[6,256,512]{{2,1,0}} get-tuple-element(%wide.param.4), index=7\n"
    planted += "  %spoil = bf16[6,256,512]{2,1,0} copy(%whole)"
    [copy] = copies_in_loops(text.replace(parameter, planted, 1), 100_000)
    assert (copy.name, copy.shape.dimensions, copy.executions) == ("spoil", (6, 256, 512), 6)
    assert copy.argument == 0


def held(path, shape, itemsize=4):
    """An array of the state of which a device holds this shape."""
    return LeafLayout(path, shape, itemsize, "", (Shard(0, (), shape, itemsize * prod(shape)),))


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((4, 16, 32), "that of a shard of mu/up, nu/up or up"),
        ((4, 32, 16), "that of a shard of mu/down"),
        ((32, 4, 16), "the sizes of a shard (4, 32, 16) of mu/down, mu/up, nu/up or 2 others"),
        ((1, 7, 9), "that of a shard of a0, a1, a2 or 3 others"),
        ((7, 9, 2), ""),
    ],
)
def test_a_copy_names_every_array_of_its_shape(shape, told):
    """Of parameters and moments that are held alike nobody knows which it is; one in another order is no match."""
    many = [held(f"a{number}", (1, 7, 9)) for number in range(6)]
    moments = [held("mu/down", (4, 32, 16)), held("mu/up", (4, 16, 32)), held("nu/up", (4, 16, 32))]
    halves = [held("half/up", (4, 16, 32), itemsize=2)]
    arrays = [*moments, *halves, held("up", (4, 16, 32)), *many]
    assert held_so(Shape("f32", shape), arrays) == told
