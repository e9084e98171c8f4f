"""Where the arrays of a state are placed, and how many bytes of them a device holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from meshproof.contract import Part, Tree, leaves
from meshproof.measures.layout import LeafLayout, observe_layout, own_memory
from meshproof.measures.memory import is_key
from meshproof.observing.gathering import whole_layout
from meshproof.observing.members import canonical, no_layout
from meshproof.observing.seen import Facet, NotSupported, Seen, ToldOnce
from meshproof.observing.state import array_leaves, bytes_per_device, in_model_order, is_scalar
from meshproof.observing.subject import Subject

DECLARED_BY: dict[Part, str] = {
    "parameters": "SHD-1",
    "optimizer_state": "SHD-2",
    "auxiliary": "SHD-2",
    "gradients": "MEM-1",
}
"""The clause by which the declared layout of a part is judged, and which tells of a pattern that matches nothing."""


@dataclass(frozen=True)
class Layouts(Facet):
    """Where a state is placed at one moment, and its bytes on the fullest device.

    ``arrays`` are those of the state as JAX sees it; ``parameters``, ``optimizer_state`` and ``auxiliary`` (empty where
    the strategy has none) as the strategy shows them. ``undeclared`` are the paths of arrays that no part shows.
    ``scalar_bytes`` is the part of ``state_bytes`` in random keys and in arrays of which a device holds one element:
    step counters and other scalars, with a device dimension or without. ``memories`` are the kinds of memory that the
    devices have, their own first.
    """

    arrays: Seen[tuple[LeafLayout, ...]]
    parameters: Seen[tuple[LeafLayout, ...]]
    optimizer_state: Seen[tuple[LeafLayout, ...]]
    auxiliary: Seen[tuple[LeafLayout, ...]]
    undeclared: Seen[tuple[str, ...]]
    state_bytes: Seen[int]
    scalar_bytes: Seen[int]
    memories: Seen[tuple[str, ...]]


def observe_layouts(subject: Subject, state: Any) -> Layouts:
    """Where a state is placed now. A member that raises is recorded, not raised."""

    def look() -> Layouts:
        shown = subject.attempt(lambda: _shown(subject, state))
        named = _held_once(state, shown)
        arrays = [array for _, array in named]
        return Layouts(
            arrays=whole_layout(observe_layout(dict(named), subject.strategy.mesh, None)),
            parameters=subject.attempt(lambda: _of_part(subject, "parameters", state), "parameters"),
            optimizer_state=subject.attempt(lambda: _of_part(subject, "optimizer_state", state), "optimizer_state"),
            auxiliary=subject.attempt(lambda: _of_part(subject, "auxiliary", state))
            if subject.has("auxiliary")
            else (),
            undeclared=subject.then(shown, lambda shown: undeclared_in(shown, named)),
            state_bytes=bytes_per_device(arrays),
            scalar_bytes=bytes_per_device([array for array in arrays if _is_small(array)]),
            memories=subject.attempt(lambda: memories(subject.strategy.mesh.devices.flat[0])),
        )

    return subject.facet(Layouts, look)


def memories(device: jax.Device) -> tuple[str, ...]:
    """The kinds of memory that a device has, its own first."""
    own = own_memory(device)
    try:
        others = [str(memory.kind) for memory in device.addressable_memories()]
    except jax.errors.JaxRuntimeError:  # the compiler alone is here, and does not say
        others = []
    return tuple(dict.fromkeys([own, *others]))


def _of_part(subject: Subject, part: Part, state: Any) -> tuple[LeafLayout, ...] | NotSupported | ToldOnce:
    return layout_of_tree(subject, part, _at_rest(subject, part, state))


def _at_rest(subject: Subject, part: Part, state: Any) -> Tree:
    if subject.has("at_rest") and part in (held := subject.strategy.at_rest(state)):
        return canonical(held[part], f"at_rest's {part}")
    return subject.tree(part, state)


def _is_small(array: jax.Array) -> bool:
    return is_scalar(array) or is_key(str(array.dtype), array.shape)


def _shown(subject: Subject, state: Any) -> list[Any]:
    """The arrays that parts show."""
    parts: tuple[Part, ...] = ("parameters", "optimizer_state", "auxiliary")
    trees = [_at_rest(subject, part, state) for part in parts if subject.has(part)]
    return [array for tree in trees for _, array in leaves(tree)]


def _held_once(state: Any, shown: Seen[list[Any]]) -> list[tuple[str, Any]]:
    """The arrays of a state. One that stands in it twice, as an NNX optimizer's own reference to the parameters, takes
    its bytes once, unless parts show it twice."""
    times = Counter(map(id, shown)) if isinstance(shown, list) else Counter()
    found, seen = [], Counter[int]()
    for path, array in array_leaves(state):
        seen[id(array)] += 1
        if not isinstance(array, jax.Array) or seen[id(array)] <= max(times[id(array)], 1):
            found.append((path, array))
    return found


def undeclared_in(shown: list[Any], named: list[tuple[str, jax.Array]]) -> tuple[str, ...]:
    """The arrays of a state that no part shows: not themselves, nor as another array of their shape and dtype, or of
    what one device has of it, as of a state that ``pmap`` stacks.

    A strategy may show copies, and its random keys are never shown themselves.
    """
    by_id = {id(array): array for array in shown}
    others = [(path, array) for path, array in named if by_id.pop(id(array), None) is None and not _is_small(array)]
    copies = Counter((array.shape, array.dtype) for array in by_id.values())
    found = []
    for path, array in others:
        shapes = (shape for shape in (array.shape, array.shape[1:]) if copies[shape, array.dtype])
        if (shape := next(shapes, None)) is None:
            found.append(path)
        else:
            copies[shape, array.dtype] -= 1
    return tuple(found)


def layout_of_tree(subject: Subject, part: Part, tree: Tree) -> tuple[LeafLayout, ...] | NotSupported | ToldOnce:
    """Where the leaves of one part are placed, in model order; or that the contract declares others."""
    found = dict(in_model_order(leaves(tree), subject.model))
    for said in ("parameters", "computed") if part == "parameters" else (part,):
        if unmatched := subject.case.contract.unmatched(said, found):
            return ToldOnce(
                f"contract: expected leaves of {said} that match {unmatched}, saw none among {sorted(found)}, or only "
                f"such as a pattern before it takes: mend the pattern, or leave it out",
                DECLARED_BY[part],
            )
    memory = partial(subject.case.contract.memory_kind, part)
    return no_layout(part, found) or whole_layout(
        observe_layout(found, subject.strategy.mesh, declared(subject, part), memory)
    )


def declared(subject: Subject, part: Part) -> Callable[[str], Any] | None:
    """The contract's ``PartitionSpec`` of a leaf of this part by its path; ``None`` where it declares none."""
    contract = subject.case.contract
    if getattr(contract, part) is None:
        return None
    return lambda path: contract.spec(part, path)
