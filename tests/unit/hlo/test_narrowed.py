"""What is sent in more bits than are kept is found, through what only reorders it, tuples and fusions."""

import pytest

from meshproof.hlo.narrowed import Narrowed, narrowed
from meshproof.hlo.shapes import Shape
from suites.test_bytes_on_the_wire import cast_too_late
from tests.unit.hlo.texts import module

GATHER = "all-gather({}), channel_id=1, replica_groups={{}}, dimensions={{0}}, use_global_device_ids=true"
CASTING = """
%casting (a: f32[64]) -> bf16[64] {
  %a = f32[64]{0} parameter(0)
  %b = f32[64]{0} bitcast(%a)
  ROOT %c = bf16[64]{0} convert(%b)
}

%adding (a: f32[64]) -> f32[64] {
  %a = f32[64]{0} parameter(0)
  ROOT %b = f32[64]{0} add(%a, %a)
}
"""
FUSED = "bf16[64]{0} fusion(%g), kind=kLoop, calls=%casting"


def gathered(*readers, of="f32[64]{0}"):
    """A program that gathers 64 numbers, which these read."""
    lines = [f"%r.{at} = {reader}" for at, reader in enumerate(readers)]
    entry = ["%p = f32[8]{0} parameter(0)", f"%g = {of} {GATHER.format('%p')}", *lines]
    return module("\n    ".join([*entry, "ROOT %z = s32[] constant(0)"]), CASTING)


@pytest.mark.parametrize(
    ("readers", "found"),
    [
        (["bf16[64]{0} convert(%g)"], ["bf16"]),
        ([FUSED], ["bf16"]),
        (["f32[64]{0} copy(%g)", "bf16[64]{0} convert(%r.0)"], ["bf16"]),
        (["bf16[64]{0} convert(%g)", FUSED], ["bf16"]),
        (["bf16[64]{0} convert(%g)", "f8e4m3fn[64]{0} convert(%g)"], ["bf16"]),
        (["f32[64]{0} add(%g, %g)"], []),
        (["bf16[64]{0} convert(%g)", "f32[64]{0} add(%g, %g)"], []),
        (["bf16[64]{0} convert(%g)", "f32[64]{0} fusion(%g), kind=kLoop, calls=%adding"], []),
        (["s32[64]{0} convert(%g)"], []),
        (["f64[64]{0} convert(%g)"], []),
        ([], []),
    ],
)
def test_all_that_reads_it_must_cast_it(readers, found):
    """To fewer bits of a float: one that reads it as it is wants them all."""
    seen = narrowed(gathered(*readers))
    assert [each.dtype for each in seen] == found
    assert all((each.operation, each.shape.dtype, each.bytes) == ("all-gather", "f32", 128) for each in seen)


def test_an_asynchronous_one_is_read_where_it_is_done():
    """And of a tuple each array for itself."""
    entry = f"""%p = f32[8]{{0}} parameter(0)
    %s = (f32[8]{{0}}, f32[64]{{0}}) all-gather-start(%p), channel_id=1, replica_groups={{}}, dimensions={{0}}
    %g = f32[64]{{0}} all-gather-done(%s)
    %c = bf16[64]{{0}} convert(%g)
    %t = (f32[64]{{0}}, f32[64]{{0}}) {GATHER.format("%p, %p")}
    %a = f32[64]{{0}} get-tuple-element(%t), index=0
    %b = f32[64]{{0}} get-tuple-element(%t), index=1
    %n = bf16[64]{{0}} convert(%a)
    %w = f32[64]{{0}} add(%b, %b)
    ROOT %z = s32[] constant(0)"""
    assert [(each.name, each.dtype) for each in narrowed(module(entry, CASTING))] == [("g", "bf16"), ("t", "bf16")]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [((128, 64), "192 bytes less would be sent"), ((128, None), "how many bytes less is unknown")],
)
def test_what_could_be_saved_is_told(sizes, told):
    """In a sentence for each operation and pair of types; what the text does not tell is not nothing."""
    found = [Narrowed("g", "all-gather", Shape("f32", (64,)), "bf16", size, 1) for size in sizes]
    [said] = cast_too_late(found)
    assert said.startswith("all-gather of 2 arrays in f32, which all that reads them casts to bf16") and told in said
