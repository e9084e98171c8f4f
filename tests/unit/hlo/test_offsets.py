"""An offset is followed through fusions, calls and loops to what computes it, or is unknown."""

import pytest

from meshproof.hlo import census
from tests.unit.hlo.texts import ADD, FUSED, MESH, OVER_DATA, OWN_OFFSET, OWN_SLICE, module, sliced

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


@pytest.mark.parametrize(
    ("kept", "operations"), [("%o", {"all-reduce", "reduce-scatter"}), ("%n", {"all-reduce"}), ("%x", {"all-reduce"})]
)
def test_offset_is_followed_through_a_loop_before(kept: str, operations: set[str]) -> None:
    """What a loop hands on untouched is after it what it was before: a second sum is sliced there, after the loop."""
    after = f"""%after = u32[] get-tuple-element(%w), index=2
    %q = f32[64]{{0}} all-reduce(%sum), {OVER_DATA}
    ROOT %d = f32[32]{{0}} {OWN_SLICE.replace("%r", "%q").replace("%offset", "%after")}"""
    assert {entry.operation for entry in census(in_loop(kept=kept, after=after), MESH)} == operations
