"""Where the arrays of a state are placed, and how many bytes of them a device holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from meshproof.contract import Part, Tree, leaves
from meshproof.measures.layout import LeafLayout, observe_layout
from meshproof.observing.members import no_layout
from meshproof.observing.seen import Facet, NotSupported, Seen
from meshproof.observing.state import array_leaves, bytes_per_device, in_model_order, is_scalar
from meshproof.observing.subject import Subject


@dataclass(frozen=True)
class Layouts(Facet):
    """Where a state is placed at one moment, and its bytes on the fullest device.

    ``arrays`` are those of the state as JAX sees it, ``parameters`` and ``optimizer_state`` as the strategy shows them.
    ``scalar_bytes`` is the part of ``state_bytes`` in arrays of which a device holds one element: step counters and
    other scalars, with a device dimension or without.
    """

    arrays: Seen[tuple[LeafLayout, ...]]
    parameters: Seen[tuple[LeafLayout, ...]]
    optimizer_state: Seen[tuple[LeafLayout, ...]]
    state_bytes: Seen[int]
    scalar_bytes: Seen[int]


def observe_layouts(subject: Subject, state: Any) -> Layouts:
    """Where a state is placed now. A member that raises is recorded, not raised."""

    def look() -> Layouts:
        arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
        return Layouts(
            arrays=observe_layout(dict(array_leaves(state)), subject.strategy.mesh, None),
            parameters=subject.attempt(lambda: _of_part(subject, "parameters", state), "parameters"),
            optimizer_state=subject.attempt(lambda: _of_part(subject, "optimizer_state", state), "optimizer_state"),
            state_bytes=bytes_per_device(arrays),
            scalar_bytes=bytes_per_device([array for array in arrays if is_scalar(array)]),
        )

    return subject.facet(Layouts, look)


def _of_part(subject: Subject, part: Part, state: Any) -> tuple[LeafLayout, ...] | NotSupported:
    if subject.has("at_rest"):
        return layout_of_tree(subject, part, subject.strategy.at_rest(state)[part])
    return layout_of_tree(subject, part, subject.tree(part, state))


def layout_of_tree(subject: Subject, part: Part, tree: Tree) -> tuple[LeafLayout, ...] | NotSupported:
    """Where the leaves of one part are placed, in model order.

    Raises ``LookupError`` where the contract declares leaves that are not there.
    """
    found = dict(in_model_order(leaves(tree), subject.model))
    for said in ("parameters", "computed") if part == "parameters" else (part,):
        if unmatched := subject.case.contract.unmatched(said, found):
            raise LookupError(
                f"the contract declares {said} {unmatched}, but of the leaves {sorted(found)} none matches, or one "
                f"that does is taken by a pattern before it"
            )
    return no_layout(part, found) or observe_layout(found, subject.strategy.mesh, declared(subject, part))


def declared(subject: Subject, part: Part) -> Callable[[str], Any] | None:
    """The contract's ``PartitionSpec`` of a leaf of this part by its path; ``None`` where it declares none."""
    contract = subject.case.contract
    if getattr(contract, part) is None:
        return None
    return lambda path: contract.spec(part, path)
