"""Collectives count as often as they run: loops multiply, branches must agree, unknown stays unknown."""

from collections.abc import Callable

import pytest

from meshproof.hlo import HloError, census
from meshproof.hlo.products import products
from tests.unit.hlo.texts import ADD, EVERYBODY, computation, module

STATE = "(s32[], f32[64])"


def loop(
    start: str = "%start = s32[] constant(0)",
    bound: str = "%n = s32[] constant(6)",
    direction: str = "LT",
    step: str = "%one = s32[] constant(1)\n%next = s32[] add(%i, %one)",
    backend_config: str = "",
    compare: str = "%i, %n",
) -> str:
    """A while that runs one all-reduce of f32[64] per iteration."""
    body = f"""
%body (s: {STATE}) -> {STATE} {{
  %s = (s32[], f32[64]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[64]{{0}} get-tuple-element(%s), index=1
  {step}
  %y = f32[64]{{0}} all-reduce(%x), {EVERYBODY}
  ROOT %t = (s32[], f32[64]{{0}}) tuple(%next, %y)
}}
"""
    condition = f"""
%condition (s: {STATE}) -> pred[] {{
  %s = (s32[], f32[64]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  {bound}
  ROOT %c = pred[] compare({compare}), direction={direction}
}}
"""
    entry = f"""%p = f32[64]{{0}} parameter(0)
    {start}
    %t = (s32[], f32[64]{{0}}) tuple(%start, %p)
    %w = (s32[], f32[64]{{0}}) while(%t), condition=%condition, body=%body{backend_config}
    ROOT %r = f32[64]{{0}} get-tuple-element(%w), index=1"""
    indented = (ADD + body + condition).replace("\n%next", "\n  %next")
    return module(entry, indented)


DERIVED = {
    "counts up": (loop(), 6),
    "with backend config": (
        loop(start="%start = s32[] copy(%p)", backend_config=', backend_config={"known_trip_count":{"n":"9"}}'),
        9,
    ),
    "inclusive": (loop(direction="LE"), 7),
    "from two": (loop(start="%start = s32[] constant(2)"), 4),
    "through a copy": (loop(start="%zero = s32[] constant(0)\n%start = s32[] copy(%zero)"), 6),
    "in threes, rounded up": (
        loop(bound="%n = s32[] constant(7)", step="%k = s32[] constant(3)\n  %next = s32[] add(%i, %k)"),
        3,
    ),
    "down": (
        loop(
            "%start = s32[] constant(5)",
            "%n = s32[] constant(0)",
            "GT",
            "%k = s32[] constant(1)\n  %next = s32[] subtract(%i, %k)",
        ),
        5,
    ),
    "down inclusive": (
        loop(
            "%start = s32[] constant(5)",
            "%n = s32[] constant(0)",
            "GE",
            "%k = s32[] constant(-1)\n  %next = s32[] add(%k, %i)",
        ),
        6,
    ),
    "mirrored": (loop(direction="GT", compare="%n, %i"), 6),
    "not equal": (loop(direction="NE"), 6),
}


@pytest.mark.parametrize(("text", "trips"), DERIVED.values(), ids=DERIVED)
def test_trip_count_is_derived(text: str, trips: int) -> None:
    """The trip count is read from the backend config, or derived from condition, first value and step."""
    (entry,) = census(text, {"data": 8})
    assert (entry.executions, entry.tensors, entry.bytes) == (trips, trips, trips * 256)


UNKNOWN = {
    "bound is data": loop(bound="%n = s32[] get-tuple-element(%s), index=0"),
    "start is data": loop(start="%start = s32[] convert(%p)"),
    "step is data": loop(step="%k = s32[] convert(%x)\n  %next = s32[] add(%i, %k)"),
    "step is a product": loop(step="%k = s32[] constant(2)\n  %next = s32[] multiply(%i, %k)"),
    "step from another element": loop(
        step="%j = s32[] get-tuple-element(%s), index=1\n  %k = s32[] constant(1)\n  %next = s32[] add(%j, %k)"
    ),
    "subtracted from a constant": loop(step="%k = s32[] constant(7)\n  %next = s32[] subtract(%k, %i)"),
    "steps away": loop(step="%k = s32[] constant(-1)\n  %next = s32[] add(%i, %k)"),
    "stands still": loop(step="%k = s32[] constant(0)\n  %next = s32[] add(%i, %k)"),
    "equality": loop(direction="EQ"),
    "steps over": loop(direction="NE", step="%k = s32[] constant(4)\n  %next = s32[] add(%i, %k)"),
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_trip_count_is_unknown(text: str) -> None:
    """A loop whose count the text does not tell has counts of None: not 0, not 1."""
    (entry,) = census(text, {"data": 8})
    assert (entry.operation, entry.axes) == ("all-reduce", ("data",))
    assert (entry.executions, entry.tensors, entry.bytes) == (None, None, None)


def test_first_value_from_a_call_is_unknown() -> None:
    """A loop in a called computation may start from anything that its callers hand it."""
    start = "%s.1 = (s32[], f32[64]{0}) parameter(1)\n%start = s32[] get-tuple-element(%s.1), index=0"
    bodies, entry = loop(start=start).removeprefix("HloModule test, num_partitions=8\n").split("\nENTRY %main")
    caller = """%p = f32[64]{0} parameter(0)
    %zero = s32[] constant(0)
    %s = (s32[], f32[64]{0}) tuple(%zero, %p)
    ROOT %r = f32[64]{0} call(%p, %s), to_apply=%called"""
    (entry,) = census(module(caller, f"{bodies}\n%called{entry}"), {"data": 8})
    assert entry.executions is None


def test_loop_that_never_runs_moves_nothing() -> None:
    """A loop whose condition is false from the start has no entry."""
    assert census(loop(bound="%n = s32[] constant(0)"), {"data": 8}) == ()


def test_condition_runs_once_more() -> None:
    """A collective in the condition of a loop of 6 runs 7 times."""
    text = loop()
    reduced = f"%v = f32[64]{{0}} all-reduce(%q), {EVERYBODY}"
    in_condition = f"  %q = f32[64]{{0}} get-tuple-element(%s), index=1\n  {reduced}\n  ROOT %c"
    (entry,) = census(text.replace("  ROOT %c", in_condition), {"data": 8})
    assert entry.executions == 6 + 7


def branches(left: str, right: str) -> str:
    """A conditional between two bodies of f32[64]."""
    bodies = computation("left", left) + computation("right", right)
    entry = """%p = f32[64]{0} parameter(0)
    %which = s32[] convert(%p)
    ROOT %r = f32[64]{0} conditional(%which, %p, %p), branch_computations={%left, %right}"""
    return module(entry, ADD + bodies)


def test_branches_that_agree_count_once() -> None:
    """Whichever branch is taken, the same moves: it is counted once."""
    (entry,) = census(branches(f"all-reduce(%a), {EVERYBODY}", f"all-reduce(%a), {EVERYBODY}"), {"data": 8})
    assert entry.executions == 1


def test_branches_that_differ_are_unknown() -> None:
    """Where only one branch communicates, or they move other amounts, all their counts are unknown."""
    (entry,) = census(branches(f"all-reduce(%a), {EVERYBODY}", "negate(%a)"), {"data": 8})
    assert (entry.executions, entry.bytes) == (None, None)


def test_body_called_twice_counts_twice() -> None:
    """A computation that two instructions call runs twice."""
    called = computation("f", f"all-reduce(%a), {EVERYBODY}")
    entry = """%p = f32[64]{0} parameter(0)
    %a = f32[64]{0} call(%p), to_apply=%f
    ROOT %r = f32[64]{0} call(%a), to_apply=%f"""
    (found,) = census(module(entry, ADD + called), {"data": 8})
    assert found.executions == 2


def test_wrapped_asynchronous_collective_counts_at_its_start() -> None:
    """`async-start … calls=` a wrapped collective is counted once, its update and done are not."""
    wrapped = computation("w", f"all-reduce(%a), {EVERYBODY}")
    entry = """%p = f32[64]{0} parameter(0)
    %s = ((f32[64]{0}), f32[64]{0}, s32[]) async-start(%p), calls=%w
    %u = ((f32[64]{0}), f32[64]{0}, s32[]) async-update(%s), calls=%w
    ROOT %r = f32[64]{0} async-done(%u), calls=%w"""
    (found,) = census(module(entry, ADD + wrapped), {"data": 8})
    assert (found.executions, found.realized_as) == (1, "async-start all-reduce")


def test_missing_body_is_refused() -> None:
    """A call to a computation that is not in the text, or a loop without a body, is an error."""
    with pytest.raises(HloError, match="is not in the text"):
        census(loop().replace("body=%body", "body=%lost"), {"data": 8})
    with pytest.raises(HloError, match="while does not name what it runs; expected body=, condition="):
        census(loop().replace(", body=%body", ""), {"data": 8})
    text = branches("negate(%a)", "negate(%a)").replace("branch_computations={%left, %right}", "true_computation=%left")
    with pytest.raises(HloError, match="expected branch_computations= or true_computation=, false_computation="):
        census(text, {"data": 8})
    for spelled in ("{}", "{%add, %add}"):
        call = f"%p = f32[64]{{0}} parameter(0)\nROOT %r = f32[64]{{0}} call(%p), to_apply={spelled}"
        with pytest.raises(HloError, match="call does not name what it runs; expected to_apply="):
            census(module(call), {"data": 8})
    recursive = loop().replace(f"all-reduce(%x), {EVERYBODY}", "fusion(%x), kind=kLoop, calls=%again")
    again = computation("again", "fusion(%a), kind=kLoop, calls=%again")
    with pytest.raises(HloError, match="calls itself"):
        census(recursive.replace("\n%body", f"{again}\n%body", 1), {"data": 8})


@pytest.mark.parametrize("reader", [lambda text: census(text, {"data": 8}), products])
def test_a_chain_too_long_to_follow_is_refused(reader: Callable[[str], object]) -> None:
    """An induction variable that goes through thousands of additions is an error, not a crash."""
    adds = "".join(f"  %a{at + 1} = s32[] add(%a{at}, %one)\n" for at in range(5000))
    step = f"%one = s32[] constant(1)\n  %a0 = s32[] copy(%i)\n{adds}  %next = s32[] copy(%a5000)"
    with pytest.raises(HloError, match="nested too deeply"):
        reader(loop(step=step))
