"""Three spellings of replica groups against NumPy, and the axes they run over."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshproof.hlo import HloError, census
from meshproof.hlo.replica_groups import expand_groups, match_axes, match_pair_axes, read_groups
from tests.unit.hlo.texts import all_reduce, module

SIZES = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4)


def spell_list(values: object) -> str:
    """`[2,4]` as HLO prints it, without spaces."""
    return "[" + ",".join(map(str, values)) + "]"


@given(st.data())
def test_iota_is_numpy(data: st.DataObject) -> None:
    """`[a,b]<=[c,d]T(…)` is arange, reshape, transpose, reshape."""
    source = data.draw(SIZES)
    order = data.draw(st.permutations(range(len(source))))
    total = math.prod(source)
    length = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    truth = np.arange(total).reshape(source).transpose(order).reshape(-1, length)
    transposed = "" if list(order) == sorted(order) and data.draw(st.booleans()) else f"T({','.join(map(str, order))})"
    spelling = f"{spell_list(truth.shape)}<={spell_list(source)}{transposed}"
    assert expand_groups(spelling, total) == tuple(map(tuple, truth.tolist()))


@given(st.data())
def test_mesh_form_is_numpy(data: st.DataObject) -> None:
    """`mesh['a'=2,…], device_ids=(…) {'a'}` varies the named axes of the mesh of these ids and keeps the others."""
    sizes = data.draw(SIZES)
    names = [f"axis_{i}" for i in range(len(sizes))]
    varied = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    ids = np.arange(math.prod(sizes))
    permuted = ""
    if data.draw(st.booleans()):
        source = data.draw(st.permutations(sizes))
        order = data.draw(st.permutations(range(len(source))))
        ids = ids.reshape(source).transpose(order).ravel()
        permuted = f", device_ids=({spell_list(source)}T({','.join(map(str, order))}))"
    kept = [i for i in range(len(sizes)) if i not in varied]
    length = math.prod(sizes[i] for i in varied)
    truth = ids.reshape(sizes).transpose([*kept, *varied]).reshape(-1, length)
    axes = ",".join(f"'{n}'={s}" for n, s in zip(names, sizes, strict=True))
    spelling = f"mesh[{axes}]{permuted} {{{','.join(repr(names[i]) for i in varied)}}}"
    found = expand_groups(spelling, ids.size)
    assert {frozenset(group) for group in found} == {frozenset(group) for group in truth.tolist()}


@given(st.data())
def test_sub_axes_are_numpy(data: st.DataObject) -> None:
    """`'a':(pre)size` varies the middle of axis a split in (pre, size, rest)."""
    pre, size, rest, other = (data.draw(st.sampled_from([1, 2, 3])) for _ in range(4))
    whole = pre * size * rest
    truth = np.arange(whole * other).reshape(pre, size, rest, other).transpose(0, 2, 3, 1).reshape(-1, size)
    found = expand_groups(f"mesh['a'={whole},'b'={other}] {{'a':({pre}){size}}}", whole * other)
    assert {frozenset(group) for group in found} == {frozenset(group) for group in truth.tolist()}


@given(st.data())
def test_every_product_of_axes_is_found(data: st.DataObject) -> None:
    """Groups that vary any subset of the mesh axes are recognised as exactly that subset, in any spelling and order."""
    sizes = data.draw(SIZES)
    mesh = {f"m{i}": size for i, size in enumerate(sizes)}
    varied = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    kept = [i for i in range(len(sizes)) if i not in varied]
    length = math.prod(sizes[i] for i in varied)
    groups = np.arange(math.prod(sizes)).reshape(sizes).transpose([*kept, *varied]).reshape(-1, length)
    shuffled = data.draw(st.permutations([tuple(data.draw(st.permutations(group))) for group in groups.tolist()]))
    lists = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in shuffled) + "}"
    found = match_axes(read_groups(lists + ", x=1", 0, math.prod(sizes)), mesh)
    assert found == tuple(name for i, (name, size) in enumerate(mesh.items()) if i in varied and size > 1)


@given(st.data())
def test_pairs_run_over_the_axes_they_move_along(data: st.DataObject) -> None:
    """A collective-permute runs over the axes along which any of its pairs moves."""
    sizes = data.draw(SIZES)
    mesh = {f"m{i}": size for i, size in enumerate(sizes)}
    axis = data.draw(st.sampled_from(range(len(sizes))))
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    hop = data.draw(st.booleans())
    pairs = np.stack([ids, np.roll(ids, -1, axis)], -1).take(range(sizes[axis] - hop), axis).reshape(-1, 2)
    expected = (f"m{axis}",) if sizes[axis] > 1 else ()
    assert match_pair_axes(tuple(map(tuple, pairs.tolist())), mesh) == expected


@pytest.mark.parametrize(
    "groups",
    [
        "{{0,4},{1,5},{2,6},{3,7}}",
        "[4,2]<=[2,4]T(1,0)",
        "mesh['data'=2,'model'=4] {'data'}",
        "mesh['model'=2,'data'=4] {'model'}",
        "mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0'}",
        "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}",
        "mesh['a'=4,'b'=2], device_ids=(0,4,1,5,2,6,3,7) {'b'}",
        "mesh['a'=8] {'a':(1)2}",
    ],
)
def test_one_meaning_in_every_spelling(groups: str) -> None:
    """All spellings of the same sets are the data axis of data=2, model=4, whatever names the compiler gave them."""
    (entry,) = census(all_reduce(groups), {"data": 2, "model": 4})
    assert entry.axes == ("data",)


def test_empty_groups_are_everybody() -> None:
    """`replica_groups={}` is one group of all devices."""
    (entry,) = census(all_reduce("{}"), {"data": 2, "model": 4})
    assert entry.axes == ("data", "model")


def test_axes_of_size_one_never_appear() -> None:
    """An axis of size 1 is in no census, and groups of one device move nothing."""
    (entry,) = census(all_reduce("{{0,1,2,3,4,5,6,7}}"), {"one": 1, "data": 8})
    assert entry.axes == ("data",)
    assert census(all_reduce("{{0},{1},{2},{3},{4},{5},{6},{7}}"), {"data": 8}) == ()


PARTS = {
    "last half": ("{{0,1},{2,3},{4,5},{6,7}}", ("model:(2)2",)),
    "first half": ("{{0,2},{1,3},{4,6},{5,7}}", ("model:(1)2",)),
    "half, and an axis": ("{{0,2,4,6},{1,3,5,7}}", ("data", "model:(1)2")),
    "by its name": ("mesh['a'=2,'b'=4] {'b':(2)2}", ("model:(2)2",)),
}


@pytest.mark.parametrize(("groups", "axes"), PARTS.values(), ids=PARTS)
def test_parts_of_axes_are_named(groups: str, axes: tuple[str, ...]) -> None:
    """Groups over a part of an axis run over that part, and what moves is counted."""
    (entry,) = census(all_reduce(groups), {"data": 2, "model": 4})
    assert (entry.axes, entry.bytes) == (axes, 256)


@given(st.data())
def test_every_product_of_parts_is_found(data: st.DataObject) -> None:
    """Two parts of an axis, apart or one after the other, are named so that the name spells the same groups."""
    sizes = [data.draw(st.sampled_from([2, 3])) for _ in range(4)]
    varied = data.draw(st.lists(st.sampled_from(range(4)), unique=True, min_size=1))
    kept = [i for i in range(4) if i not in varied]
    whole, length = math.prod(sizes), math.prod(sizes[i] for i in varied)
    groups = np.arange(whole).reshape(sizes).transpose([*kept, *varied]).reshape(-1, length)
    axes = match_axes(tuple(map(tuple, groups.tolist())), {"a": whole})
    spelled = ",".join(f"'a'{name.removeprefix('a')}" for name in axes)
    named = expand_groups(f"mesh['a'={whole}] {{{spelled}}}", whole)
    assert {frozenset(group) for group in named} == {frozenset(group) for group in groups.tolist()}


REFUSED = {
    "a part that is another one elsewhere": ("{{0,1},{2,3},{4,6},{5,7}}", "not the product of any axes"),
    "three of four": ("{{0,3,4,7},{1,2,5,6}}", "not the product of any axes"),
    "crooked": ("{{0,5},{1,4},{2,7},{3,6}}", "not the product of any axes"),
    "unequal": ("{{0,1,2},{3,4,5,6,7}}", "of one size"),
    "missing": ("{{0,1,2,3}}", "each of 8 positions once"),
    "twice": ("{{0,1,2,3},{3,4,5,6}}", "each of 8 positions once"),
    "beyond": ("{{0,1,2,3},{4,5,6,8}}", "each of 8 positions once"),
    "new spelling": ("<0..7>", "unknown spelling"),
    "cut": ("{{0,1,2,3},{4,5", "unknown spelling"),
    "iota of other size": ("[2,4]<=[16]", "whose sizes agree"),
    "iota order": ("[2,4]<=[2,4]T(1,1)", "whose sizes agree"),
    "mesh axis unknown": ("mesh['a'=8] {'b'}", "expected an axis of the mesh"),
    "mesh axis repeated": ("mesh['a'=2,'a'=4] {'a'}", "with distinct axes"),
    "mesh sub-axis": ("mesh['a'=8] {'a':(3)2}", "does not divide"),
    "mesh ids": ("mesh['a'=8], device_ids=([2,2]) {'a'}", "expected device_ids="),
    "mesh too small": ("mesh['a'=4] {'a'}", "each of 8 positions once"),
}


@pytest.mark.parametrize(("groups", "problem"), REFUSED.values(), ids=REFUSED)
def test_refuses_unknown_groups(groups: str, problem: str) -> None:
    """Groups that are no product of mesh axes, or no groups at all, are an error at their place, never an axis."""
    with pytest.raises(HloError, match=problem) as caught:
        census(all_reduce(groups), {"data": 2, "model": 4})
    assert caught.value.line == 11
    assert "report it with this line" in str(caught.value)


def test_ids_without_global_ids_are_replicas() -> None:
    """Without use_global_device_ids an all-reduce with a channel spans all partitions, one without moves nothing."""
    mesh = {"data": 8}
    (entry,) = census(all_reduce("{{0}}", attributes="channel_id=1"), mesh)
    assert entry.axes == ("data",)
    assert census(all_reduce("{{0}}", attributes="metadata={}"), mesh) == ()
    for attributes in ("channel_id=1", "metadata={}"):
        with pytest.raises(HloError, match="each of 1 positions once"):
            census(all_reduce("{{0,1,2,3,4,5,6,7}}", attributes=attributes), mesh)
    with pytest.raises(HloError, match="without channel_id"):
        census(all_reduce("{{0,1,2,3,4,5,6,7}}", attributes="use_global_device_ids=true"), mesh)


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ("{{0,8}}", "positions below 8"),
        ("{{0,1},{0,2}}", "at most once"),
        ("{{0,1},{2,1}}", "at most once"),
        ("0->1", "expected pairs"),
    ],
)
def test_refuses_unknown_pairs(pairs: str, problem: str) -> None:
    """Pairs outside of the mesh, or with a position that sends or receives twice, are an error."""
    text = module(
        f"""%p = f32[64]{{0}} parameter(0)
        ROOT %r = f32[64]{{0}} collective-permute(%p), channel_id=1, source_target_pairs={pairs}"""
    )
    with pytest.raises(HloError, match=problem):
        census(text, {"data": 8})
