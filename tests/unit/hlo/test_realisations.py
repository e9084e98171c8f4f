"""What an all-reduce means is read from its definitions and uses, and only the right ones change it."""

import re

import pytest

from meshproof.hlo import HloError, census
from tests.unit.hlo.texts import ADD, FUSED, MESH, OVER_DATA, OWN_OFFSET, OWN_SLICE, module, sliced, stored

SCATTERED = {
    "own slice": (f"ROOT %s = f32[32]{{0}} {OWN_SLICE}", OWN_OFFSET),
    "slices twice": (f"%s = f32[32]{{0}} {OWN_SLICE}\nROOT %t = f32[32]{{0}} {OWN_SLICE}", OWN_OFFSET),
    "scaled": (
        """%scale = f32[64]{0} broadcast(%f), dimensions={}
        %m = f32[64]{0} multiply(%r, %scale)
        %b = f32[8,8]{1,0} bitcast(%m)
        ROOT %s = f32[4,8]{1,0} dynamic-slice(%b, %offset, %zero), dynamic_slice_sizes={4,8}""",
        "%f = f32[] constant(0.5)\n%row = u32[] divide(%id, %four)\n%offset = u32[] multiply(%row, %four)",
    ),
    "squared beside": (
        f"""%s = f32[32]{{0}} {OWN_SLICE}
        %m = f32[64]{{0}} multiply(%r, %r)
        ROOT %t = f32[32]{{0}} {OWN_SLICE.replace("%r", "%m")}""",
        OWN_OFFSET,
    ),
    "table": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        """%table = s32[8]{0} constant({0, 0, 0, 0, 32, 32, 32, 32})
        %entry = s32[1]{0} dynamic-slice(%table, %id), dynamic_slice_sizes={1}
        %offset = s32[] reshape(%entry)""",
    ),
    "elided table": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        """%table = s32[8]{0} constant({...})
        %entry = s32[1]{0} dynamic-slice(%table, %id), dynamic_slice_sizes={1}
        %offset = s32[] reshape(%entry)""",
    ),
    # Neither can be evaluated, but both depend on the partition and constants alone.
    "table too short": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        """%table = s32[4]{0} constant({0, 0, 32, 32})
        %entry = s32[1]{0} dynamic-slice(%table, %id), dynamic_slice_sizes={1}
        %offset = s32[] reshape(%entry)""",
    ),
    "table of two dimensions": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        """%table = s32[8]{0} constant({0, 0, 0, 0, 32, 32, 32, 32})
        %rows = s32[2,4]{1,0} reshape(%table)
        %row = u32[] divide(%id, %four)
        %entry = s32[1,1]{1,0} dynamic-slice(%rows, %row, %zero), dynamic_slice_sizes={1,1}
        %offset = s32[] reshape(%entry)""",
    ),
}


@pytest.mark.parametrize(("uses", "before"), SCATTERED.values(), ids=SCATTERED)
def test_own_slice_is_a_reduce_scatter(uses: str, before: str) -> None:
    """An all-reduce of which every use is the device's own slice is a logical reduce-scatter."""
    (entry,) = census(sliced(uses, before), MESH)
    assert (entry.operation, entry.realized_as) == ("reduce-scatter", "all-reduce + dynamic-slice")
    assert (entry.axes, entry.tensors, entry.bytes) == (("data",), 1, 256)


def test_slice_inside_a_fusion_is_a_reduce_scatter() -> None:
    """The slice is found inside a fusion whose parameters are the sum and the partition's row."""
    uses = "ROOT %s = f32[32]{0} fusion(%r, %row), kind=kLoop, calls=%take"
    (entry,) = census(sliced(uses, "%row = u32[] divide(%id, %four)", FUSED), MESH)
    assert entry.operation == "reduce-scatter"


NOT_SCATTERED = {
    "used whole beside": (f"%s = f32[32]{{0}} {OWN_SLICE}\nROOT %w = f32[64]{{0}} negate(%r)", OWN_OFFSET),
    "returned whole": (
        f"%s = f32[32]{{0}} {OWN_SLICE}\nROOT %w = (f32[64]{{0}}, f32[32]{{0}}) tuple(%r, %s)",
        OWN_OFFSET,
    ),
    "unused": ("ROOT %w = f32[64]{0} copy(%p)", ""),
    "constant offset": (f"ROOT %s = f32[32]{{0}} {OWN_SLICE}", "%offset = u32[] constant(32)"),
    "offset from data": (f"ROOT %s = f32[32]{{0}} {OWN_SLICE}", "%offset = u32[] parameter(1)"),
    "offset partly from data": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        "%n = u32[] parameter(1)\n%row = u32[] divide(%id, %four)\n%offset = u32[] multiply(%row, %n)",
    ),
    "second offset from data": (
        """%b = f32[8,8]{1,0} bitcast(%r)
        ROOT %s = f32[4,8]{1,0} dynamic-slice(%b, %offset, %n), dynamic_slice_sizes={4,8}""",
        "%n = u32[] parameter(1)\n%row = u32[] divide(%id, %four)\n%offset = u32[] multiply(%row, %four)",
    ),
    # The column of the partition is its place on model: the members of a data group would all take the same half.
    "other axis": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        "%column = u32[] remainder(%id, %four)\n%offset = u32[] multiply(%column, %size)",
    ),
    "other axis through a broadcast": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        """%wide = u32[1]{0} broadcast(%id), dimensions={}
        %fours = u32[1]{0} broadcast(%four), dimensions={}
        %sizes = u32[1]{0} broadcast(%size), dimensions={}
        %column = u32[1]{0} remainder(%wide, %fours)
        %columns = u32[1]{0} multiply(%column, %sizes)
        %offset = u32[] reshape(%columns)""",
    ),
    "other axis by table": (
        f"ROOT %s = f32[32]{{0}} {OWN_SLICE}",
        """%table = s32[8]{0} constant({0, 32, 0, 32, 0, 32, 0, 32})
        %entry = s32[1]{0} dynamic-slice(%table, %id), dynamic_slice_sizes={1}
        %offset = s32[] reshape(%entry)""",
    ),
    "slice too large": ("ROOT %s = f32[48]{0} dynamic-slice(%r, %offset), dynamic_slice_sizes={48}", OWN_OFFSET),
    "slice too small": ("ROOT %s = f32[16]{0} dynamic-slice(%r, %offset), dynamic_slice_sizes={16}", OWN_OFFSET),
    "static slice": ("ROOT %s = f32[32]{0} slice(%r), slice={[0:32]}", ""),
    "mixed with a whole tensor": (
        f"%m = f32[64]{{0}} multiply(%r, %p)\nROOT %s = f32[32]{{0}} {OWN_SLICE.replace('%r', '%m')}",
        OWN_OFFSET,
    ),
    "squared whole": (f"%s = f32[32]{{0}} {OWN_SLICE}\nROOT %w = f32[64]{{0}} multiply(%r, %r)", OWN_OFFSET),
    "unknown operation between": (
        f"%m = f32[64]{{0}} reverse(%r), dimensions={{0}}\nROOT %s = f32[32]{{0}} {OWN_SLICE.replace('%r', '%m')}",
        OWN_OFFSET,
    ),
    "is the offset": ("%c = u32[64]{0} convert(%r)\nROOT %s = f32[32]{0} dynamic-slice(%p, %c)", ""),
}


@pytest.mark.parametrize(("uses", "before"), NOT_SCATTERED.values(), ids=NOT_SCATTERED)
def test_everything_else_is_an_all_reduce(uses: str, before: str) -> None:
    """One use of the whole, or a slice by anything but the device's own place in its group, leaves an all-reduce."""
    (entry,) = census(sliced(uses, before), MESH)
    assert (entry.operation, entry.realized_as) == ("all-reduce", "all-reduce")


def test_real_text_with_one_whole_use_added() -> None:
    """In a real FSDP step, one more use of one gradient as a whole turns exactly this gradient into an all-reduce."""
    text = stored("cpu-0.12.0.1-two_layers")
    whole = re.search(r"%(\S+) = f32\[512,2048\]\S* get-tuple-element\(%all-reduce[^\n]*\n", text)
    assert whole is not None
    spoiled = text.replace(whole[0], f"{whole[0]}  %spoil = f32[512,2048]{{1,0}} sine(%{whole[1]})\n")
    before = {(e.operation, e.tensors, e.bytes) for e in census(text, {"data": 8})}
    after = {(e.operation, e.tensors, e.bytes) for e in census(spoiled, {"data": 8})}
    assert before - after == {("reduce-scatter", 3, 8_390_656), ("all-reduce", 1, 8_192)}
    assert after - before == {("reduce-scatter", 2, 8_390_656 - 4 * 2**20), ("all-reduce", 2, 8_192 + 4 * 2**20)}


PACKED = (
    FUSED
    + """
%pack (c: f32[64], d: f32[64]) -> f32[128] {
  %c = f32[64]{0} parameter(0)
  %d = f32[64]{0} parameter(1)
  ROOT %packed = f32[128]{0} concatenate(%c, %d), dimensions={0}
}

%part (g: f32[128]) -> f32[64] {
  %g = f32[128]{0} parameter(0)
  ROOT %first = f32[64]{0} slice(%g), slice={[0:64]}
}
"""
)


def packed(first: str, second: str) -> set[tuple[str, int | None]]:
    """What an all-reduce over data of two vectors, concatenated, means, and its bytes, where they are so used."""
    text = module(
        f"""%p = f32[64]{{0}} parameter(0)
        %id = u32[] partition-id()
        %size = u32[] constant(32)
        %four = u32[] constant(4)
        %zero = u32[] constant(0)
        {OWN_OFFSET}
        %both = f32[128]{{0}} fusion(%p, %p), kind=kLoop, calls=%pack
        %start = f32[128]{{0}} all-reduce-start(%both), {OVER_DATA}
        %r = f32[128]{{0}} all-reduce-done(%start)
        {first}
        %b = f32[64]{{0}} slice(%r), slice={{[64:128]}}
        {second}
        ROOT %out = f32[64]{{0}} copy(%p)""",
        PACKED,
    )
    return {(entry.operation, entry.bytes) for entry in census(text, MESH)}


FIRST = "%a = f32[64]{0} fusion(%r), kind=kLoop, calls=%part\n%s = f32[32]{0} fusion(%a, %row), kind=kLoop, calls=%take"
WHOLE = "%w = f32[64]{0} sine(%b)"


def test_parts_of_a_packed_sum_are_scattered_each_on_its_own() -> None:
    """GPU sums several gradients as one vector: one of which all uses are own slices is scattered."""
    assert packed(FIRST, WHOLE) == {("reduce-scatter", 256), ("all-reduce", 256)}
    assert packed(FIRST, "%t = f32[32]{0} fusion(%b, %row), kind=kLoop, calls=%take") == {("reduce-scatter", 512)}


@pytest.mark.parametrize(
    "first",
    [
        f"{FIRST}\n%n = f32[64]{{0}} sine(%a)",
        f"{FIRST}\n%n = f32[128]{{0}} negate(%r)",
        f"{FIRST}\n%n = f32[2,64]{{1,0}} bitcast(%r)",
        f"{FIRST}\n%n = f32[32]{{0}} slice(%r), slice={{[32:96]}}",
        f"{FIRST}\n%n = f32[32]{{0}} slice(%r), slice={{[0:64:2]}}",
        FIRST.replace("%row", "%zero"),
        "%s = f32[64]{0} dynamic-slice(%r, %offset), dynamic_slice_sizes={64}",
    ],
    ids=["whole part", "whole vector", "in two dimensions", "across", "every other", "not its own", "not a part"],
)
def test_parts_of_a_packed_sum_with_another_use_are_sums(first: str) -> None:
    """One more use of a part, of the vector, or of elements of two parts leaves the sum of it a sum."""
    assert packed(first, WHOLE) == {("all-reduce", 512)}


def padded(background: str, offset: str, reducer: str = "add") -> str:
    """An all-reduce of a tensor into which every device wrote its own half."""
    return module(
        f"""%p = f32[32]{{0}} parameter(0)
        %id = u32[] partition-id()
        %size = u32[] constant(32)
        %four = u32[] constant(4)
        %value = f32[] constant({background})
        %whole = f32[64]{{0}} broadcast(%value), dimensions={{}}
        %row = u32[] {offset}(%id, %four)
        %place = u32[] multiply(%row, %size)
        %mine = f32[64]{{0}} dynamic-update-slice(%whole, %p, %place)
        ROOT %r = f32[64]{{0}} all-reduce(%mine), {OVER_DATA}""",
        ADD.replace("add(%x", f"{reducer}(%x"),
    )


def test_sum_of_padded_shards_is_an_all_gather() -> None:
    """TPU gathers small shards by writing them into zeros and summing: that moves what an all-gather brings."""
    (entry,) = census(padded("0", "divide"), MESH)
    assert (entry.operation, entry.realized_as) == ("all-gather", "dynamic-update-slice + all-reduce")
    assert (entry.tensors, entry.bytes) == (1, 256)


@pytest.mark.parametrize(
    ("made", "constant"),
    [
        ("iota(), iota_dimension=0", True),
        ("broadcast(%id), dimensions={}", True),
        ("parameter(0)", False),
        ("rng(%id, %size), distribution=rng_uniform", False),
        ('custom-call(%id), custom_call_target="x"', False),
    ],
)
def test_what_each_device_could_compute_is_told(made: str, constant: bool) -> None:
    """A gather of positions and constants alone moves no data; one of anything else, or of random numbers, does."""
    text = padded("0", "divide").replace("%p = f32[32]{0} parameter(0)\n", "")
    text = text.replace("  %whole", f"  %p = f32[32]{{0}} {made}\n  %whole")
    (entry,) = census(text, MESH)
    assert (entry.operation, entry.bytes, entry.constant) == ("all-gather", 256, constant)


def test_a_scatter_that_the_partitioner_reduced_is_told() -> None:
    """What XLA's partitioner wrote is marked, on the collective or where its results are taken; by hand it is not."""
    for target in ("gpu", "tpu"):
        told = {e.derived for e in census(stored(f"{target}-0.12.0.1-two_layers"), {"data": 8}) if "scatter" in str(e)}
        assert True in told
        by_hand = census(stored(f"{target}-0.12.0.1-collectives"), MESH)
        assert not any(entry.derived for entry in by_hand)


@pytest.mark.parametrize(
    "text",
    [
        padded("1", "divide"),
        padded("0", "remainder"),
        padded("0", "divide", "multiply"),
        padded("0", "divide").replace("f32[32]", "f32[16]"),
    ],
    ids=["not zeros", "the same place", "no sum", "less than its share"],
)
def test_other_sums_are_no_all_gather(text: str) -> None:
    """Shards written over anything but zeros, at the same place, multiplied or too small are an all-reduce."""
    (entry,) = census(text, MESH)
    assert entry.operation == "all-reduce"


def test_fusion_named_reduce_scatter_must_be_one() -> None:
    """A fusion called all-reduce-scatter that does not slice its sum is an unknown realisation, and an error."""
    text = stored("tpu-0.12.0.1-two_layers")
    body = re.search(r"%all-reduce-scatter[^\n]*\{\n(?:  [^\n]*\n)+\}", text)
    assert body is not None
    with pytest.raises(HloError, match="does more to its all-reduce than slice it"):
        census(text.replace(body[0], body[0].replace(" partition-id()", " constant(0)")), {"data": 8})
