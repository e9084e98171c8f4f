"""A collective that a TPU runs beside compute is printed in several fusions, and counted once."""

import re

import pytest

from meshproof.hlo import HloError, census
from meshproof.hlo.schedule import flights
from tests.unit.hlo.texts import EVERYBODY, module, stored

CHAIN = ("s32[8]{0}", "s32[64]{0}")
GATHER = "all-gather(%x), channel_id=18, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true"
CARRIED = f"""
%started (x: s32[8]) -> (s32[8], s32[64]) {{
  %x = s32[8]{{0}} parameter(0)
  %g = s32[64]{{0}} {GATHER}
  ROOT %c = ({", ".join(CHAIN)}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}

%beside (x: s32[8], y: s32[64]) -> (s32[8], s32[64]) {{
  %x = s32[8]{{0}} parameter(0)
  %y = s32[64]{{0}} parameter(1)
  %g = s32[64]{{0}} {GATHER}
  ROOT %t = ({", ".join(CHAIN)}) tuple(%x, %g)
}}

%ended (x: s32[8], y: s32[64]) -> s32[64] {{
  %x = s32[8]{{0}} parameter(0)
  %y = s32[64]{{0}} parameter(1)
  %g = s32[64]{{0}} {GATHER}
  ROOT %c = s32[64]{{0}} custom-call(%x, %y, %g), custom_call_target="AsyncCollectiveDone"
}}

%condition (carry: (s32[], s32[8], s32[64])) -> pred[] {{
  %carry = (s32[], {", ".join(CHAIN)}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %four = s32[] constant(4)
  ROOT %more = pred[] compare(%i, %four), direction=LT
}}

%body (carry: (s32[], s32[8], s32[64])) -> (s32[], s32[8], s32[64]) {{
  %carry = (s32[], {", ".join(CHAIN)}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = s32[8]{{0}} get-tuple-element(%carry), index=1
  %y = s32[64]{{0}} get-tuple-element(%carry), index=2
  %f = ({", ".join(CHAIN)}) fusion(%x, %y), kind=kOutput, calls=%beside
  %a = s32[8]{{0}} get-tuple-element(%f), index=0
  %b = s32[64]{{0}} get-tuple-element(%f), index=1
  ROOT %t = (s32[], {", ".join(CHAIN)}) tuple(%next, %a, %b)
}}
"""
ENTRY = f"""
%p = s32[8]{{0}} parameter(0)
%zero = s32[] constant(0)
%s = ({", ".join(CHAIN)}) fusion(%p), kind=kCustom, calls=%started
%a = s32[8]{{0}} get-tuple-element(%s), index=0
%b = s32[64]{{0}} get-tuple-element(%s), index=1
%t = (s32[], {", ".join(CHAIN)}) tuple(%zero, %a, %b)
%w = (s32[], {", ".join(CHAIN)}) while(%t), condition=%condition, body=%body
%c = s32[8]{{0}} get-tuple-element(%w), index=1
%d = s32[64]{{0}} get-tuple-element(%w), index=2
ROOT %e = s32[64]{{0}} fusion(%c, %d), kind=kCustom, calls=%ended
"""


def test_what_a_loop_carries_of_a_collective_under_way_is_counted_once() -> None:
    """A gather that starts before a loop, runs beside what it computes, and ends after it; in the loop, one whose chain
    begins nowhere is one for each turn."""
    text = module(ENTRY, CARRIED, "is_scheduled=true, num_partitions=8")
    [gather] = census(text, {"data": 8})
    assert (gather.operation, gather.executions, gather.bytes) == ("all-gather", 1, 256)
    [flight] = flights(text, {"data": 8})
    assert flight.is_asynchronous and flight.executions == 1
    apart = text.replace(
        "%t = (s32[], s32[8]{0}, s32[64]{0}) tuple(%zero, %a, %b)",
        "%t = (s32[], s32[8]{0}, s32[64]{0}) tuple(%zero, %p, %z)",
    )
    apart = apart.replace(
        "%zero = s32[] constant(0)", "%zero = s32[] constant(0)\n  %z = s32[64]{0} broadcast(%zero), dimensions={}"
    )
    apart = apart.replace("fusion(%c, %d), kind=kCustom", "fusion(%a, %b), kind=kCustom")
    assert sum(each.executions or 0 for each in census(apart, {"data": 8})) == 5


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
