"""Replica groups: three spellings, one meaning: which device positions talk to each other.

    lists   {{0,4},{1,5},{2,6},{3,7}}                               as written
    iota    [4,2]<=[2,4]T(1,0)                                      arange(8).reshape(2,4).transpose(1,0).reshape(4,2)
    mesh    mesh['data'=2,'model'=4], device_ids=([8]) {'data'}     vary 'data', keep the rest
    empty   {}                                                      all positions, one group

Names in the mesh form are the compiler's own and often invented (`axis_0`): only its sizes and order are used. Every
spelling becomes sets of positions in `mesh.devices.flat`, and those are matched against the products of subsets of the
caller's axes, then of parts of them. A part is named as Shardy spells it: `data:(2)2` is of size 2, after a first part
of size 2. Of `data=4`, `data:(1)2` groups {0,2} and {1,3}, and `data:(2)2` groups {0,1} and {2,3}. Problems are
`ValueError`s: the caller knows the line they stand in.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import prod

Groups = tuple[tuple[int, ...], ...]
Sets = frozenset[frozenset[int]]

_LISTS = re.compile(r"\{(\{[\d,\s]*\}(?:,\s*\{[\d,\s]*\})*)?\}")
_LIST = re.compile(r"\{([^}]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:,\s*device_ids=\(([^{}]*)\))?\s*\{([^}]*)\}")
_MESH_AXIS = re.compile(r"'([^']+)'=(\d+)")
_MESH_USE = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
_DEVICE_IDS = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_ID_LIST = re.compile(r"\d+(?:,\s*\d+)*")
_SPELLING = re.compile(rf"(?:{_LISTS.pattern}|{_IOTA.pattern}|{_MESH.pattern})(?=\s*(?:,|$))")


def read_groups(text: str, start: int, devices: int) -> Groups:
    """The groups spelled at `start` of `text`, as positions; an empty spelling is one group of all `devices`.

    Raises `ValueError` for an unknown spelling, and for groups that do not name each position below `devices` once.
    """
    match = _SPELLING.match(text, start)
    if match is None:
        raise ValueError(
            "unknown spelling of replica groups; expected {{0,1},{2,3}}, [2,2]<=[4] or mesh['a'=2,'b'=2] {'a'}"
        )
    return expand_groups(match[0], devices)


@lru_cache(maxsize=1024)
def expand_groups(spelling: str, devices: int) -> Groups:
    """The groups of one spelling. A module repeats few spellings many times, so they are kept."""
    for pattern, expand in ((_LISTS, _expand_lists), (_IOTA, _expand_iota), (_MESH, _expand_mesh)):
        match = pattern.fullmatch(spelling)
        if match is not None:
            groups = expand(match, devices)
            break
    else:
        raise ValueError(f"unknown spelling of replica groups: {spelling}")
    ids = sorted(position for group in groups for position in group)
    if ids != list(range(devices)):
        raise ValueError(f"expected replica groups that name each of {devices} positions once, got {_show(groups)}")
    if len({len(group) for group in groups}) > 1:
        raise ValueError(f"expected replica groups of one size, got {_show(groups)}")
    return groups


def _expand_lists(match: re.Match[str], devices: int) -> Groups:
    if match[1] is None:
        return (tuple(range(devices)),)
    return tuple(_numbers(group) for group in _LIST.findall(match[1]))


def _expand_iota(match: re.Match[str], devices: int) -> Groups:
    shape, source = _numbers(match[1]), _numbers(match[2])
    order = _numbers(match[3]) if match[3] else tuple(range(len(source)))
    if len(shape) != 2 or prod(shape) != prod(source) or not _is_order(order, source):
        raise ValueError(f"expected an iota of groups such as [4,2]<=[2,4]T(1,0), whose sizes agree, got {match[0]}")
    if prod(shape) != devices:
        raise ValueError(f"expected an iota that names each of {devices} positions once, got {match[0]}")
    return _rows(transposed_iota(source, order), shape[1])


def _expand_mesh(match: re.Match[str], devices: int) -> Groups:
    axes = {name: int(size) for name, size in _MESH_AXIS.findall(match[1])}
    if not axes or ",".join(f"'{name}'={size}" for name, size in axes.items()) != match[1].replace(" ", ""):
        raise ValueError(f"expected a mesh such as mesh['data'=2,'model'=4] with distinct axes, got {match[0]}")
    if prod(axes.values()) != devices:
        raise ValueError(f"expected a mesh that names each of {devices} positions once, got {match[0]}")
    sizes, varied = _divide(axes, _read_uses(match[3], axes))
    ids = _read_device_ids(match[2], prod(sizes))
    return tuple(tuple(ids[at] for at in group) for group in _products(sizes, varied))


def _divide(axes: Mapping[str, int], uses: Mapping[str, list[tuple[int, int]]]) -> tuple[list[int], list[int]]:
    """The sizes of these axes, cut where parts (size before, size) begin and end, and which of the pieces are parts."""
    sizes: list[int] = []
    varied: list[int] = []
    for name, size in axes.items():
        used = 1
        for before, length in sorted(uses.get(name, [])):
            if before < used or before % used or not length or size % (before * length):
                raise ValueError(f"sub-axis '{name}':({before}){length} does not divide axis '{name}' of size {size}")
            sizes += [before // used, length]
            varied.append(len(sizes) - 1)
            used = before * length
        sizes.append(size // used)
    return sizes, varied


def _read_uses(text: str, axes: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
    """Per axis name, the parts of it that vary, as (size before, size)."""
    uses: dict[str, list[tuple[int, int]]] = {}
    for part in text.split(",") if text.strip() else ():
        match = _MESH_USE.fullmatch(part.strip())
        if match is None or match[1] not in axes:
            raise ValueError(f"expected an axis of the mesh such as 'data' or 'data':(1)2, got {part.strip()!r}")
        before, length = (int(match[2]), int(match[3])) if match[2] else (1, axes[match[1]])
        uses.setdefault(match[1], []).append((before, length))
    return uses


def _read_device_ids(text: str | None, devices: int) -> Sequence[int]:
    if text is None:
        return range(devices)
    match = _DEVICE_IDS.fullmatch(text.strip())
    if match is not None:
        source = _numbers(match[1])
        order = _numbers(match[2]) if match[2] else tuple(range(len(source)))
        if prod(source) == devices and _is_order(order, source):
            return transposed_iota(source, order)
    elif _ID_LIST.fullmatch(text.strip()) and len(_numbers(text)) == devices:
        return _numbers(text)
    raise ValueError(f"expected device_ids=([2,4]T(1,0)) over {devices} devices, got device_ids=({text})")


def _is_order(order: Sequence[int], shape: Sequence[int]) -> bool:
    return sorted(order) == list(range(len(shape)))


def transposed_iota(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """`arange(prod(shape)).reshape(shape).transpose(order).ravel()`, in row-major order."""
    strides = [prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
    flat = [0]
    for dimension in order:
        flat = [base + step * strides[dimension] for base in flat for step in range(shape[dimension])]
    return flat


def _products(sizes: Sequence[int], varied: Sequence[int]) -> Groups:
    """The groups that vary these dimensions of an iota of these sizes, and keep the others."""
    kept = [dimension for dimension in range(len(sizes)) if dimension not in varied]
    return _rows(transposed_iota(sizes, [*kept, *varied]), prod(sizes[dimension] for dimension in varied))


def _rows(flat: Sequence[int], length: int) -> Groups:
    return tuple(tuple(flat[first : first + length]) for first in range(0, len(flat), length))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())


def match_axes(groups: Groups, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of `mesh`, or parts of them, whose product these groups are, in mesh order; never an axis of size 1.

    Raises `ValueError` where they are not such a product.
    """
    return _match_axes(groups, tuple(mesh.items()))


@lru_cache(maxsize=1024)
def _match_axes(groups: Groups, mesh: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    found = _axes_by_groups(mesh).get(_as_sets(groups))
    if found is None:
        found = _match_parts(groups, dict(mesh))
    if found is None:
        shape = ", ".join(f"{name}={size}" for name, size in mesh)
        problem = f"replica groups {_show(groups)} are not the product of any axes of the mesh {shape}, nor of parts"
        raise ValueError(problem)
    return found


def _match_parts(groups: Groups, mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """The axes, of which some are parts, that the group of position 0 varies, if the others vary the same ones."""
    first = next(group for group in groups if 0 in group)
    uses, stride = {}, prod(mesh.values())
    for name, size in mesh.items():
        stride //= size
        uses[name] = _parts(sorted({position // stride % size for position in first}), size)
    try:
        varied = _products(*_divide(mesh, uses))
    except ValueError:
        return None
    if _as_sets(varied) != _as_sets(groups):
        return None
    return tuple(
        name if length == mesh[name] else f"{name}:({before}){length}"
        for name, parts in uses.items()
        for before, length in sorted(parts)
    )


def _parts(places: Sequence[int], size: int) -> list[tuple[int, int]]:
    """The parts (size before, size) of an axis that has these places, the last part first."""
    parts = []
    while len(places) > 1:
        stride = places[1]
        length = next((at for at, place in enumerate(places) if place != at * stride), len(places))
        parts.append((size // (stride * length), length))
        places = places[::length]
    return parts


@lru_cache(maxsize=64)
def _axes_by_groups(mesh: tuple[tuple[str, int], ...]) -> dict[Sets, tuple[str, ...]]:
    sizes = [size for _, size in mesh]
    real = [dimension for dimension, size in enumerate(sizes) if size > 1]
    subsets = (varied for count in range(len(real) + 1) for varied in combinations(real, count))
    return {_as_sets(_products(sizes, varied)): tuple(mesh[at][0] for at in varied) for varied in subsets}


def _as_sets(groups: Groups) -> Sets:
    return frozenset(frozenset(group) for group in groups)


def match_pair_axes(pairs: Groups, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of `mesh` along which any of these (source, target) pairs moves, in mesh order.

    Raises `ValueError` for positions outside of the mesh, and for one that sends or receives twice.
    """
    devices = prod(mesh.values())
    if any(len(pair) != 2 or max(pair) >= devices for pair in pairs):
        raise ValueError(f"expected pairs {{source,target}} of positions below {devices}, got {_show(pairs)}")
    if any(len(set(ends)) < len(pairs) for ends in zip(*pairs, strict=True)):
        raise ValueError("expected each position at most once as a source and at most once as a target")
    axes = []
    stride = devices
    for name, size in mesh.items():
        stride //= size
        if any(source // stride % size != target // stride % size for source, target in pairs):
            axes.append(name)
    return tuple(axes)


def _show(groups: Groups) -> str:
    shown = ",".join(
        "{" + ",".join(map(str, group[:8])) + (",…" if len(group) > 8 else "") + "}" for group in groups[:4]
    )
    return "{" + shown + (",…" if len(groups) > 4 else "") + "}"
