"""Each collective is counted with all it carries; what cannot be accounted for is refused."""

import re

import pytest

from meshproof.hlo import HloError, census
from meshproof.hlo.host_transfers import HostMemory, host_memory, host_transfers
from tests.unit.hlo.texts import ADD, all_reduce, module, stored

MESH = {"data": 2, "model": 4}


def test_shared_channel_is_not_one_collective() -> None:
    """shard_map gives every collective channel 1: two of them are two."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %a = f32[64]{0} all-reduce(%p), <everybody>
        ROOT %b = f32[64]{0} all-reduce(%a), <everybody>"""
    )
    (entry,) = census(text, {"data": 8})
    assert (entry.executions, entry.tensors, entry.bytes) == (2, 2, 512)


def test_tuple_with_comments_carries_every_tensor() -> None:
    """The `/*index=5*/` of long tuples hides nothing: all tensors of a combined all-reduce are counted."""
    types = ", ".join(f"{'/*index=5*/' if i == 5 else ''}f32[64]{{0}}" for i in range(7))
    names = ", ".join(f"{'/*index=5*/' if i == 5 else ''}%p" for i in range(7))
    text = module(
        f"""%p = f32[64]{{0}} parameter(0)
        ROOT %r = ({types}) all-reduce({names}), <everybody>"""
    )
    (entry,) = census(text, {"data": 8})
    assert (entry.executions, entry.tensors, entry.bytes) == (1, 7, 7 * 256)


def test_kinds_in_one_tuple_are_told_apart() -> None:
    """Element types in one combined collective make entries of their own, each one execution of it."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %h = s4[64]{0} convert(%p)
        ROOT %r = (f32[64]{0}, s4[64]{0}) all-reduce(%p, %h), <everybody>"""
    )
    found = {(e.dtype, e.executions, e.tensors, e.bytes) for e in census(text, {"data": 8})}
    assert found == {("f32", 1, 1, 256), ("s4", 1, 1, 32)}


PHASES = {
    'op_name="jit(step)/jvp(forward)/dot_general"': "forward",
    'op_name="jit(loss)/forward/psum"': "forward",
    'op_name="jit(step)/transpose(jvp(forward))/dot_general"': "backward",
    'op_name="jit(step)/transpose(jvp())/psum"': "backward",
    'op_name="jit(step)/synchronize_gradients/psum"': "synchronize_gradients",
    'op_name="jit(step)/transpose(jvp(forward))/synchronize_gradients/psum"': "synchronize_gradients",
    'op_name="jit(step)/optimizer/sub"': "optimizer",
    'op_name="jit(step)/(transpose(jvp(forward))/a:transpose(jvp(forward))/b)"': "backward",
    'op_name="jit(step)/(transpose(jvp(forward))/a:jvp(forward)/b)"': "other",
    "op_name=\"p[\\'kernel\\']\"": "other",
    'op_name="jit(step)/fast_forwarding/x"': "other",
    "": "other",
}


@pytest.mark.parametrize(("metadata", "phase"), PHASES.items())
def test_phase_is_the_named_scope(metadata: str, phase: str) -> None:
    """The phase is that of the named scopes in op_name, and "other" where there are none or they disagree."""
    (entry,) = census(
        all_reduce("{}", attributes=f"channel_id=1, use_global_device_ids=true, metadata={{{metadata}}}"), {"d": 8}
    )
    assert entry.phase == phase


@pytest.mark.parametrize(
    "use",
    [
        "all-reduce-quantum(%p), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}",
        "teleport(%p), source_target_pairs={{0,1}}",
        "whisper(%p), channel_id=7",
        'custom-call(%p), custom_call_target="x", channel_id=3',
        'custom-call(%p), custom_call_target="tpu_custom_call", backend_config={"a": {"has_communication": true}}',
        "send(%p), channel_id=3",
    ],
)
def test_unknown_opcode_that_communicates_is_refused(use: str) -> None:
    """An opcode nobody knows that names groups, pairs or a channel is an error, never nothing."""
    with pytest.raises(HloError, match="nothing was counted") as caught:
        census(module(f"%p = f32[64]{{0}} parameter(0)\nROOT %r = f32[64]{{0}} {use}"), {"data": 8})
    assert caught.value.line == 11


def test_words_in_strings_are_no_attributes() -> None:
    """An op_name that mentions replica groups is no collective."""
    text = module('ROOT %p = f32[64]{0} parameter(0), metadata={op_name="x, replica_groups={{0,1}}, channel_id=1"}')
    assert census(text, {"data": 8}) == ()


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_combined_permute_carries_every_tensor(count: int) -> None:
    """A combined collective-permute moves all its arrays, also four, which are as many operands as one in place has."""
    types, names = ", ".join(["f32[64]{0}"] * count), ", ".join(["%p"] * count)
    text = module(
        f"""%p = f32[64]{{0}} parameter(0)
        ROOT %r = ({types}) collective-permute({names}), channel_id=1, source_target_pairs={{{{0,1}},{{1,0}}}}"""
    )
    (entry,) = census(text, {"data": 8})
    assert (entry.executions, entry.tensors, entry.bytes) == (1, count, count * 256)


@pytest.mark.parametrize(("sizes", "tensors", "moved"), [("{64}", 1, 256), ("{16}", 1, 64), ("{16},{8}", 2, 96)])
def test_permute_in_place_moves_its_slices(sizes: str, tensors: int, moved: int) -> None:
    """A collective-permute into a part of another array moves slices of its first operand, and no array whole."""
    attributes = f"channel_id=1, source_target_pairs={{{{0,1}},{{1,0}}}}, slice_sizes={{{sizes}}}"
    text = module(
        f"""%p = f32[64]{{0}} parameter(0)
        %q = f32[256]{{0}} concatenate(%p, %p, %p, %p), dimensions={{0}}
        %i = s32[] constant(0)
        %at = (s32[]) tuple(%i)
        ROOT %r = f32[256]{{0}} collective-permute(%p, %q, %at, %at), {attributes}"""
    )
    (entry,) = census(text, {"data": 8})
    assert (entry.executions, entry.tensors, entry.bytes) == (1, tensors, moved)
    with pytest.raises(HloError, match=r"slices of .* spelled as slice_sizes=\{\{2,2\}\}"):
        census(text.replace(f"{{{sizes}}}", "{{2,2}}"), {"data": 8})


@pytest.mark.parametrize("quote", ["", '"'])
def test_send_and_receive_are_a_permute(quote: str) -> None:
    """A collective-permute that the compiler took apart into send and recv is counted at its send."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %t = token[] after-all()
        %r = (f32[64]{0}, u32[], token[]) recv(%t), channel_id=3
        %s = (f32[64]{0}, u32[], token[]) send(%p, %t), channel_id=3, frontend_attributes={<pairs>}
        %sd = token[] send-done(%s), channel_id=3
        %rd = (f32[64]{0}, token[]) recv-done(%r), channel_id=3
        ROOT %x = f32[64]{0} get-tuple-element(%rd), index=0"""
    )
    pairs = f"_xla_send_recv_source_target_pairs={quote}{{{{0,4}},{{1,5}},{{2,6}},{{3,7}}}}{quote}"
    (entry,) = census(text.replace("<pairs>", pairs), MESH)
    assert (entry.operation, entry.axes, entry.bytes, entry.realized_as) == (
        "collective-permute",
        ("data",),
        256,
        "send",
    )


def test_host_transfers_are_not_collectives() -> None:
    """A send to the host moves nothing between devices."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %t = token[] after-all()
        %s = (f32[64]{0}, u32[], token[]) send(%p, %t), channel_id=3, is_host_transfer=true
        %sd = token[] send-done(%s), channel_id=3, is_host_transfer=true
        ROOT %x = f32[64]{0} copy(%p)"""
    )
    assert census(text, MESH) == ()


def test_host_memory_is_counted_apart() -> None:
    """What a program takes from, leaves in, and copies to or from host memory; memory of any other space is none."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %out = (f32[64]{0:S(5)}, f32[64]{0}, u32[]) copy-start(%p)
        %done = f32[64]{0:S(5)} copy-done(%out)
        %near = (f32[64]{0:S(1)}, f32[64]{0}, u32[]) copy-start(%p)
        ROOT %x = f32[64]{0} copy(%p)"""
    )
    assert host_memory(text) == HostMemory(arguments=0, results=0, copies=1)
    header, body = text.split("\n", 1)
    layout = ", entry_computation_layout={(f32[64]{0:S(5)}, f32[8]{0:S(5)})->f32[64]{0:S(5)}}"
    assert host_memory(f"{header}{layout}\n{body}") == HostMemory(arguments=2, results=1, copies=1)
    assert host_transfers(text) == ()


def test_unknown_element_type_is_refused() -> None:
    """A collective of an element type of unknown width is an error; elsewhere the type does not matter."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %q = f12weird[64]{0} convert(%p)
        ROOT %r = f12weird[64]{0} all-reduce(%q), <everybody>"""
    )
    with pytest.raises(HloError, match="unknown element type 'f12weird'"):
        census(text, {"data": 8})
    elsewhere = re.sub(r"all-reduce\(%q\).*", "copy(%q)", text)
    assert census(elsewhere, {"data": 8}) == ()


def test_result_must_fit_the_groups() -> None:
    """An all-gather whose result is not its operand times the size of its groups is an error."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        ROOT %r = f32[256]{0} all-gather(%p), <everybody>, dimensions={0}"""
    )
    with pytest.raises(HloError, match="all-gather over 8 positions"):
        census(text, {"data": 8})


def test_collective_nothing_calls_is_refused() -> None:
    """A collective in a computation that no known instruction runs cannot be counted, and is an error."""
    text = stored("cpu-0.12.0.1-loops")
    called = re.search(r"branch_computations=\{[^}]*\}", text)
    assert called is not None
    with pytest.raises(HloError, match="which nothing known calls"):
        census(text.replace(" conditional(", " choose(").replace("branch_computations=", "options="), MESH)


def test_mesh_must_fit_the_program() -> None:
    """A mesh of another size than num_partitions is an error that names both; so are replicas."""
    with pytest.raises(HloError, match=r"compiled for 8 devices.*data=2, model=2 has 4"):
        census(all_reduce("{}"), {"data": 2, "model": 2})
    with pytest.raises(HloError, match=r"compiled for 1 devices"):
        census(all_reduce("{}").replace("num_partitions=8", "is_scheduled=true"), {"data": 8})
    with pytest.raises(HloError, match="replica_count=8"):
        census(all_reduce("{}").replace("num_partitions=8", "replica_count=8"), {"data": 8})
    with pytest.raises(ValueError, match="size 0"):
        census(all_reduce("{}"), {"data": 0})


def test_ragged_sizes_are_unknown() -> None:
    """What a ragged all-to-all moves is in its data: executions are counted, bytes are unknown."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %i = s32[8]{0} constant({0, 1, 2, 3, 4, 5, 6, 7})
        ROOT %r = f32[64]{0} ragged-all-to-all(%p, %p, %i, %i, %i, %i), channel_id=1, replica_groups={}"""
    )
    (entry,) = census(text, {"data": 8})
    assert (entry.operation, entry.executions, entry.tensors, entry.bytes) == ("ragged-all-to-all", 1, 1, None)


def test_tensors_of_an_asynchronous_collective_have_the_phases_of_their_takers() -> None:
    """What takes an element of a done says to which phase the tensor belongs."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %s = (f32[64]{0}, f32[64]{0}) all-reduce-start(%p, %p), <everybody>
        %d = (f32[64]{0}, f32[64]{0}) all-reduce-done(%s)
        %g = f32[64]{0} get-tuple-element(%d), index=0, metadata={op_name="jit(step)/optimizer/add"}
        ROOT %h = f32[64]{0} get-tuple-element(%d), index=1, metadata={op_name="jit(step)/jvp(forward)/add"}"""
    )
    assert {(entry.phase, entry.tensors) for entry in census(text, {"data": 8})} == {("optimizer", 1), ("forward", 1)}


@pytest.mark.parametrize(("packed", "tensors"), [("%a, %b", 2), ("%a, %a", 2), ("%a, %b, %a", 1)])
def test_vectors_packed_by_a_fusion_are_its_operands(packed: str, tensors: int) -> None:
    """A concatenation in a fusion carries the fusion's operands only where it has as many."""
    size = 64 * len(packed.split())
    fused = f"""
%pack (a: f32[64], b: f32[64]) -> f32[{size}] {{
  %a = f32[64]{{0}} parameter(0)
  %b = f32[64]{{0}} parameter(1)
  ROOT %c = f32[{size}]{{0}} concatenate({packed}), dimensions={{0}}
}}
"""
    entry = f"""%p = f32[64]{{0}} parameter(0)
    %f = f32[{size}]{{0}} fusion(%p, %p), kind=kLoop, calls=%pack
    ROOT %r = f32[{size}]{{0}} all-reduce(%f), <everybody>"""
    (found,) = census(module(entry, ADD + fused), {"data": 8})
    assert (found.tensors, found.bytes) == (tensors, 4 * size)
