"""What an all-reduce means is read from its definitions and uses, and only the right ones change it."""

import re

import pytest

from meshproof.hlo import HloError, census
from tests.unit.hlo.texts import ADD, EVERYBODY, module, stored

MESH = {"data": 2, "model": 4}
OVER_DATA = "channel_id=1, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=%add"


def sliced(uses: str, before: str = "", computations: str = ADD) -> str:
    """An all-reduce over data whose result %r has these uses."""
    return module(
        f"""%p = f32[64]{{0}} parameter(0)
        %id = u32[] partition-id()
        %size = u32[] constant(32)
        %four = u32[] constant(4)
        %zero = u32[] constant(0)
        {before}
        %r = f32[64]{{0}} all-reduce(%p), {OVER_DATA}
        {uses}""",
        computations,
    )


OWN_OFFSET = "%row = u32[] divide(%id, %four)\n%offset = u32[] multiply(%row, %size)"
OWN_SLICE = "dynamic-slice(%r, %offset), dynamic_slice_sizes={32}"

FUSED = (
    ADD
    + """
%take (a: f32[64], b: u32[]) -> f32[32] {
  %a = f32[64]{0} parameter(0)
  %b = u32[] parameter(1)
  %size.1 = u32[] constant(32)
  %half = f32[] constant(0.5)
  %halves = f32[64]{0} broadcast(%half), dimensions={}
  %scaled = f32[64]{0} multiply(%a, %halves)
  %offset.1 = u32[] multiply(%b, %size.1)
  ROOT %taken = f32[32]{0} dynamic-slice(%scaled, %offset.1), dynamic_slice_sizes={32}
}
"""
)

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


PLACES = (
    ADD
    + """
%places (i: u32[]) -> (u32[], u32[]) {
  %i = u32[] parameter(0)
  %four.1 = u32[] constant(4)
  %size.1 = u32[] constant(32)
  %column = u32[] remainder(%i, %four.1)
  %row = u32[] divide(%i, %four.1)
  %first = u32[] multiply(%column, %size.1)
  %second = u32[] multiply(%row, %size.1)
  ROOT %both = (u32[], u32[]) tuple(%first, %second)
}
"""
)


@pytest.mark.parametrize(("index", "operation"), [(0, "all-reduce"), (1, "reduce-scatter")])
@pytest.mark.parametrize("runs", ["fusion(%id), kind=kLoop, calls", "call(%id), to_apply"])
def test_offset_is_followed_into_what_computes_it(runs: str, index: int, operation: str) -> None:
    """An offset that a fusion or call returns beside others is read there: only the one over data is the own slice."""
    offset = f"%two = (u32[], u32[]) {runs}=%places\n%offset = u32[] get-tuple-element(%two), index={index}"
    (entry,) = census(sliced(f"ROOT %s = f32[32]{{0}} {OWN_SLICE}", offset, PLACES), MESH)
    assert entry.operation == operation


NESTED = (
    FUSED
    + """
%outer (c: u32[], d: f32[64], e: u32[]) -> f32[32] {
  %c = u32[] parameter(0)
  %d = f32[64]{0} parameter(1)
  %e = u32[] parameter(2)
  ROOT %f = f32[32]{0} fusion(%d, %e), kind=kLoop, calls=%take
}
"""
)


@pytest.mark.parametrize(
    ("rows", "operation"), [("%zero, %r, %row", "reduce-scatter"), ("%row, %r, %zero", "all-reduce")]
)
def test_offset_is_followed_out_of_nested_fusions(rows: str, operation: str) -> None:
    """A parameter of an inner fusion is the argument there, and only that parameter is one of the outer fusion."""
    uses = f"ROOT %s = f32[32]{{0}} fusion({rows}), kind=kLoop, calls=%outer"
    (entry,) = census(sliced(uses, "%row = u32[] divide(%id, %four)", NESTED), MESH)
    assert entry.operation == operation


STATE = "(s32[], f32[64]{0}, u32[], u32[])"


def in_loop(
    kept: str = "%o", own: str = "%s", first: str = "tuple(%start, %p, %offset, %size)", after: str = ""
) -> str:
    """A loop of two iterations that sums over data into %r, and slices it at %o: at first the device's own place.

    The body takes %o from the tuple `own` and hands on `kept` for it; `first` is the loop's first state. With `after`,
    the slice is there, after the loop, and the body hands on %r.
    """
    uses = f"%d = f32[32]{{0}} {OWN_SLICE.replace('%offset', '%o')}" if not after else ""
    loop = f"""
%condition (s: {STATE}) -> pred[] {{
  %s = {STATE} parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %two = s32[] constant(2)
  ROOT %c = pred[] compare(%i, %two), direction=LT
}}

%body (s: {STATE}) -> {STATE} {{
  %s = {STATE} parameter(0)
  %other = {STATE} custom-call(%s), custom_call_target="x"
  %i = s32[] get-tuple-element(%s), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %a = f32[64]{{0}} get-tuple-element(%s), index=1
  %o = u32[] get-tuple-element({own}), index=2
  %x = u32[] get-tuple-element(%s), index=3
  %n = u32[] negate(%o)
  %k = u32[] get-tuple-element(%s), index=2
  %r = f32[64]{{0}} all-reduce(%a), {OVER_DATA}
  {uses}
  ROOT %t = {STATE} tuple(%next, {"%r" if after else "%a"}, {kept}, %x)
}}
"""
    entry = f"""%p = f32[64]{{0}} parameter(0)
    %id = u32[] partition-id()
    %size = u32[] constant(32)
    %four = u32[] constant(4)
    {OWN_OFFSET}
    %start = s32[] constant(0)
    %t = {STATE} {first}
    %w = {STATE} while(%t), condition=%condition, body=%body, backend_config={{"known_trip_count":{{"n":"2"}}}}
    %sum = f32[64]{{0}} get-tuple-element(%w), index=1
    {after or "ROOT %out = f32[64]{0} copy(%sum)"}"""
    return module(entry, ADD + loop)


LOOPS = {
    "kept": (in_loop(), "reduce-scatter"),
    "another element": (in_loop(kept="%x"), "all-reduce"),
    "computed": (in_loop(kept="%n"), "all-reduce"),
    "of another tuple": (in_loop(kept="%k", own="%other"), "all-reduce"),
    "not known before": (in_loop(first="parameter(1)"), "all-reduce"),
    # The next iteration reads the whole sum.
    "sliced after the loop": (
        in_loop(after=f"ROOT %d = f32[32]{{0}} {OWN_SLICE.replace('%r', '%sum')}"),
        "all-reduce",
    ),
}


@pytest.mark.parametrize(("text", "operation"), LOOPS.values(), ids=LOOPS)
def test_offset_is_followed_out_of_a_loop_that_keeps_it(text: str, operation: str) -> None:
    """An offset from before the loop is the own place only if every iteration hands it on untouched."""
    (found,) = census(text, MESH)
    assert (found.operation, found.executions) == (operation, 2)


def test_offset_in_a_call_is_not_taken_from_another_argument() -> None:
    """An element of a call's second tuple is not that of its first, though the call hands it on like a loop."""
    body = f"""
%body (s: (u32[], u32[]), t: (u32[], u32[])) -> (u32[], f32[32]) {{
  %s = (u32[], u32[]) parameter(0)
  %t = (u32[], u32[]) parameter(1)
  %o = u32[] get-tuple-element(%t), index=0
  %q = f32[64]{{0}} iota(), iota_dimension=0
  %r = f32[64]{{0}} all-reduce(%q), {OVER_DATA}
  %d = f32[32]{{0}} {OWN_SLICE.replace("%offset", "%o")}
  ROOT %both = (u32[], f32[32]{{0}}) tuple(%o, %d)
}}
"""
    entry = f"""%id = u32[] partition-id()
    %size = u32[] constant(32)
    %four = u32[] constant(4)
    {OWN_OFFSET}
    %own = (u32[], u32[]) tuple(%offset, %size)
    %other = (u32[], u32[]) tuple(%size, %offset)
    ROOT %both = (u32[], f32[32]{{0}}) call(%own, %other), to_apply=%body"""
    (found,) = census(module(entry, ADD + body), MESH)
    assert found.operation == "all-reduce"


def called(root: str, calls: str) -> str:
    """A computation %body(x, o) with an all-reduce over data, %r, and these calls of it."""
    body = f"""
%body (x: f32[64], o: u32[]) -> f32[32] {{
  %x = f32[64]{{0}} parameter(0)
  %o = u32[] parameter(1)
  %r = f32[64]{{0}} all-reduce(%x), {OVER_DATA}
  {root}
}}
"""
    return sliced(calls, OWN_OFFSET, ADD + body).replace(f"%r = f32[64]{{0}} all-reduce(%p), {OVER_DATA}", "")


@pytest.mark.parametrize(("second", "operation"), [("", "reduce-scatter"), ("%zero", "all-reduce")])
def test_offset_from_several_callers_is_unknown(second: str, operation: str) -> None:
    """A parameter is an argument only where one call hands it over: the slice of a second call is another one."""
    calls = "%s = f32[32]{0} call(%p, %offset), to_apply=%body\n"
    calls += f"%u = f32[32]{{0}} call(%p, {second}), to_apply=%body\n" if second else ""
    own_slice = f"ROOT %d = f32[32]{{0}} {OWN_SLICE.replace('%offset', '%o')}"
    text = called(own_slice, f"{calls}ROOT %out = f32[32]{{0}} copy(%s)")
    assert {entry.operation for entry in census(text, MESH)} == {operation}


TWO = "(f32[64]{0}, u32[])"


@pytest.mark.parametrize(
    ("root", "operation"),
    [
        (f"ROOT %pair = {TWO} tuple(%r, %o)", "reduce-scatter"),
        (
            f"""%pair = {TWO} tuple(%r, %o)
  %seen = {TWO} custom-call(%pair), custom_call_target="x"
  ROOT %others = {TWO} tuple(%x, %o)""",
            "all-reduce",
        ),
    ],
)
def test_sum_leaves_a_call_in_its_root_alone(root: str, operation: str) -> None:
    """A sum that a call returns is followed to its uses there; in a tuple that stays inside, somebody may read it."""
    calls = f"""%c = {TWO} call(%p, %offset), to_apply=%body
        %g = f32[64]{{0}} get-tuple-element(%c), index=0
        ROOT %d = f32[32]{{0}} {OWN_SLICE.replace("%r", "%g")}"""
    assert {entry.operation for entry in census(called(root, calls), MESH)} == {operation}


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


def test_asynchronous_chain_is_counted_once() -> None:
    """A TPU collective printed in its start, beside compute and in its done is one; without its start, an error."""
    text = stored("tpu-0.12.0.1-two_layers")
    assert len(re.findall(r" all-gather\(", text)) == 4
    found = [e for e in census(text, {"data": 8}) if e.operation == "all-gather" and e.dtype == "bf16"]
    assert sum(e.executions or 0 for e in found) == 2
    with pytest.raises(HloError, match="whose start is not in the text"):
        census(text.replace('"AsyncCollectiveStart"', '"SomethingElse"'), {"data": 8})


def test_fusion_that_continues_one_collective_and_holds_another_is_refused() -> None:
    """The second one would not be counted: it is an error."""
    text = stored("tpu-0.12.0.1-two_layers")
    body = re.search(r"\{\n((?:  [^\n]*\n)+)(  ROOT [^\n]*AsyncCollectiveDone|  [^\n]*AsyncCollectiveDone)", text)
    assert body is not None
    second = f"  %zero.s = f32[64]{{0}} constant(0)\n  %second = f32[64]{{0}} all-reduce(%zero.s), {EVERYBODY}\n"
    with pytest.raises(HloError, match="continues one collective and holds another"):
        census(text.replace(body[1], body[1] + second), {"data": 8})
